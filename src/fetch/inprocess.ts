import type { FetchTarget } from "../request/app.ts";
import { ProxyError, unsendable } from "../error.ts";
import { createFetchTransport, type FetchClient, STANDARD } from "./fetchtransport.ts";
import { badOption, type MisuseError } from "../options/misuse.ts";
import type { HeaderList, UpstreamRequest, Transport } from "../transport.ts";

/** How a runtime's calls of an app differ from those of the Fetch standard. */
export interface AppClient extends Partial<Omit<FetchClient, "name">> {
  /** Called with each response that the app returns, before it is changed. */
  readonly note?: (response: Response) => void;
}

/**
 * A transport to apps in this process: a fetch transport whose `fetch` is the app's.
 *
 * An app may return the response of the runtime's own `fetch`, whose body that has decoded and whose fields it has not
 * changed. So this client counts as one that decodes. A response that a script makes has no URL, and stays as it is.
 *
 * @param clientFor how a runtime calls an app
 */
export function createInProcessTransport(
  clientFor: (app: FetchTarget) => AppClient = () => ({}),
): Transport {
  const name = "in-process";
  return {
    name,
    capabilities: STANDARD,
    async send(upstreamRequest, scope) {
      const app = upstreamRequest.upstream.app as FetchTarget;
      const client = clientFor(app);
      let misuse: MisuseError | undefined;
      const transport = createFetchTransport({
        capabilities: STANDARD,
        ...client,
        name,
        async fetch(url, init) {
          const request = client.fetch === undefined ? toRequest(url, init) : undefined;
          try {
            if (request === undefined) return assertResponse(await client.fetch?.(url, init));
            const answer = callApp(app, request, (error) => (misuse = error));
            const response = assertResponse(await answer);
            client.note?.(response);
            // A pipe of a fixed length fails by itself for a body of another length.
            return client.createPipe === undefined ? holdToLength(response) : response;
          } catch (thrown) {
            throw toAppError(thrown, upstreamRequest, client);
          }
        },
      });
      try {
        return await transport.send(withHead(upstreamRequest), scope);
      } catch (thrown) {
        throw misuse ?? thrown;
      }
    },
  };
}

/** The transport to apps on runtimes that call them as the Fetch standard says: all but workerd. */
export const inProcess: Transport = /* @__PURE__ */ createInProcessTransport();

/** @throws ProxyError 501 for a method that a `Request` of this runtime cannot have */
function toRequest(url: string, init: RequestInit): Request {
  const request = new Request(url, init);
  // Bun makes a GET of a method that it does not know.
  if (request.method !== init.method) throw unsendable(init.method as string);
  return request;
}

/**
 * Calls the app as a method of its object.
 * @param misused called with the error of a method that was taken from another object. The runtime throws that one
 * synchronously; an async app only rejects, so an error of the app's own is not mistaken for it.
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
 * The same response, whose body fails if it is longer or shorter than its `Content-Length`: on a connection to a client,
 * what follows would be taken for the next response, or the next response for what is missing (RFC 9112 §6.3).
 */
function holdToLength(response: Response): Response {
  const { body, headers, url } = response;
  const length = headers.get("content-length");
  // A response that `fetch` has given has a URL. It was held to its length, and may have been decoded since.
  if (body === null || length === null || url !== "") return response;
  let left = Number(length);
  const counter = new TransformStream<Uint8Array, Uint8Array>(
    {
      transform(chunk, controller) {
        left -= chunk.byteLength;
        if (left < 0) throw wrongLength();
        controller.enqueue(chunk);
      },
      flush() {
        if (left !== 0) throw wrongLength();
      },
    },
    undefined,
    { highWaterMark: 0 },
  );
  return new Response(body.pipeThrough(counter), response);
}

function wrongLength(): TypeError {
  return new TypeError("the body of the app's response is not as long as its content-length");
}

/** @throws TypeError for what an app has answered that is no response, or has no body any more */
function assertResponse(answer: Response | undefined): Response {
  if (typeof answer?.status !== "number") {
    throw new TypeError("the app's fetch returned no Response");
  }
  if (answer.bodyUsed) throw new TypeError("the app's Response has been read already");
  return answer;
}

/**
 * An app that throws is an upstream that breaks off. Its errors are never taken for those of a connection: they would
 * be a reason to send the request again, although the app has had it.
 */
function toAppError(
  thrown: unknown,
  upstreamRequest: UpstreamRequest,
  { toError }: AppClient,
): ProxyError {
  const known = thrown instanceof ProxyError ? undefined : toError?.(thrown, upstreamRequest);
  if (known !== undefined) return known;
  const message = thrown instanceof Error ? thrown.message : String(thrown);
  return new ProxyError("connection_terminated", {
    message: `the target's fetch failed: ${message}`,
    cause: thrown,
  });
}

/** Adds the fields that a client writes on a connection: `Host`, and `Content-Length` where it is known. */
function withHead(upstreamRequest: UpstreamRequest): UpstreamRequest {
  const { upstream, host, body, contentLength } = upstreamRequest;
  const headers: HeaderList = [...upstreamRequest.headers, "host", host ?? upstream.host];
  const length = contentLength ?? body?.length;
  if (body !== null && length !== undefined) headers.push("content-length", String(length));
  return { ...upstreamRequest, headers };
}
