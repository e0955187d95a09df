import { ProxyError } from "../error.ts";
import type { HeaderList } from "../fields/headers.ts";
import { badOption, type MisuseError } from "../misuse.ts";
import type { FetchTarget } from "../target/app.ts";
import type { UpstreamRequest } from "../transport/message.ts";
import type { Capabilities, Transport } from "../transport/port.ts";
import { createFetchTransport, type FetchClient, STANDARD } from "./fetchtransport.ts";

/** How a runtime calls an app, where that differs from a plain call of the app's `fetch` with a standard `Request`. */
export interface AppClient extends Partial<Omit<FetchClient, "name">> {
  /** Called with each response that the app returns; returns the response to forward. */
  readonly receive?: (response: Response) => Response;
}

/**
 * Creates a transport to apps in this process. It is a fetch transport that calls the `fetch` of the app instead of the
 * runtime's.
 *
 * An app may return a response that it got from the runtime's `fetch`. That `fetch` has decoded the body, but the
 * fields `Content-Encoding` and `Content-Length` still describe the encoded body. So this transport has the capabilities of
 * a `fetch` that decodes bodies (except on workerd, which passes encoded bodies on), and the fetch transport corrects the
 * fields. A response that the app constructed has no URL, and is not changed.
 *
 * @param clientFor returns a description of how the runtime calls an app
 * @param capabilities the features that all these calls have
 */
export function createInProcessTransport(
  clientFor: (app: FetchTarget) => AppClient,
  capabilities: Capabilities,
): Transport {
  const name = "in-process";
  return {
    name,
    capabilities,
    async send(upstreamRequest, scope) {
      const app = upstreamRequest.upstream.app as FetchTarget;
      const client = clientFor(app);
      let misuse: MisuseError | undefined;
      const transport = createFetchTransport({
        capabilities: STANDARD,
        constructsResponses: true,
        ...client,
        name,
        async fetch(url, init) {
          const request = client.fetch === undefined ? new Request(url, init) : undefined;
          try {
            if (request === undefined) return assertResponse(await client.fetch?.(url, init));
            // On Node, the signal of a collected `Request` is never aborted, even if the app has kept the signal. So keep the `Request`.
            (init.signal as AbortSignal).addEventListener("abort", () => request);
            const called = callApp(app, request, (error) => (misuse = error));
            const response = assertResponse(await called);
            return client.receive?.(response) ?? response;
          } catch (thrown) {
            throw toAppError(thrown, client);
          }
        },
      });
      try {
        return await transport.send(withFraming(upstreamRequest), scope);
      } catch (thrown) {
        throw misuse ?? thrown;
      }
    },
  };
}

/**
 * Calls the app's `fetch` as a method of the app.
 * @param misused called with an error that names the fix, if `fetch` is a method of another object. For such a method,
 * the runtime throws synchronously. Only synchronous exceptions are examined, so the rejection of an async app is never
 * taken for this mistake.
 */
function callApp(
  app: FetchTarget,
  request: Request,
  misused: (error: MisuseError) => void,
): Response | Promise<Response> {
  try {
    return app.fetch(request);
  } catch (thrown) {
    if (thrown instanceof TypeError && /^illegal invocation/i.test(thrown.message)) {
      const fix = "{ url, fetch: (request) => env.SERVICE.fetch(request) }";
      misused(
        badOption(
          "target",
          `its \`fetch\` is a method of another object; wrap it, as in \`${fix}\``,
        ),
      );
    }
    throw thrown;
  }
}

/**
 * Returns the response of an app.
 * @throws TypeError if the app returned something else, or a response whose body has been read already
 */
function assertResponse(returned: Response | undefined): Response {
  if (typeof returned?.status !== "number") {
    throw new TypeError("the app's fetch returned no Response");
  }
  if (returned.bodyUsed) throw new TypeError("the app's Response has been read already");
  return returned;
}

/**
 * Converts an error of an app. An app that throws counts as an upstream that closes the connection. A `ProxyError` that
 * the app throws is converted as well. Otherwise, it could be one after which the proxy sends the request again, such
 * as `connection_refused`, although the app has received the request.
 */
function toAppError(thrown: unknown, { toError }: AppClient): ProxyError {
  const known = thrown instanceof ProxyError ? undefined : toError?.(thrown);
  if (known !== undefined) return known;
  const message = thrown instanceof Error ? thrown.message : String(thrown);
  return new ProxyError("connection_terminated", {
    message: `the target's fetch failed: ${message}`,
    cause: thrown,
  });
}

/** Adds the fields that other transports write themselves: `Host`, and `Content-Length` where it is known. */
function withFraming(upstreamRequest: UpstreamRequest): UpstreamRequest {
  const { upstream, host, body, contentLength } = upstreamRequest;
  const headers: HeaderList = [...upstreamRequest.headers, "host", host ?? upstream.host];
  const length = contentLength ?? body?.length;
  if (body !== null && length !== undefined) headers.push("content-length", String(length));
  return { ...upstreamRequest, headers, host: undefined };
}
