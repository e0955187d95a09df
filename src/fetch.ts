import { toStream } from "./body.ts";
import type { Lifetime } from "./deadline.ts";
import { ProxyError, toProxyError } from "./error.ts";
import { toHeaderList, toHeaders } from "./headers.ts";
import type { Capabilities, HeaderList, Hop, Reply, Transport } from "./transport.ts";

/** A `fetch`, or a function of its shape. */
export type FetchLike = (url: string, init: RequestInit) => Response | Promise<Response>;

const CAPABILITIES: Capabilities = {
  // The Fetch standard has every fetch decode what it knows; these are all that any is known to.
  decodes: ["gzip", "x-gzip", "deflate", "br", "zstd"],
  host: false,
  unixSocket: false,
  tls: false,
};

/** A transport over any `fetch`. It does what fetch can: bytes are decoded, `Host` is the URL's. */
export function createFetchTransport(fetch: FetchLike): Transport {
  return {
    name: "fetch",
    capabilities: CAPABILITIES,
    async send(hop, lifetime) {
      const controller = new AbortController();
      lifetime.onabort = (error) => controller.abort(error);
      try {
        const response = await fetch(hop.upstream.origin + hop.path, toInit(hop, controller.signal));
        return toReply(response, lifetime, controller);
      } catch (thrown) {
        const error = lifetime.error ?? toNetworkError(thrown);
        lifetime.end();
        throw error;
      }
    },
  };
}

function toInit(hop: Hop, signal: AbortSignal): RequestInit {
  if (hop.method === "CONNECT" || hop.method === "TRACE" || hop.method === "TRACK") {
    throw new ProxyError("http_request_error", {
      status: 501,
      message: `fetch cannot send ${hop.method}`,
    });
  }
  const init: RequestInit & { duplex?: "half" } = {
    method: hop.method,
    headers: toHeaders(hop.headers),
    redirect: "manual",
    signal,
  };
  if (hop.body !== null && hop.method !== "GET" && hop.method !== "HEAD") {
    init.body = hop.body instanceof Uint8Array ? (hop.body as BodyInit) : toStream(hop.body);
    // Required by the Fetch standard for a stream (node#46221).
    init.duplex = "half";
  }
  return init;
}

function toReply(response: Response, lifetime: Lifetime, controller: AbortController): Reply {
  const headers = toHeaderList(response.headers);
  const { status, statusText, body } = response;
  lifetime.opened(/^text\/event-stream\b/i.test(response.headers.get("content-type") ?? ""));
  if (body === null) lifetime.end();
  return {
    status,
    statusText,
    headers: decodedBy(CAPABILITIES.decodes, response.headers) ? withoutCoding(headers) : headers,
    body: body && watch(body, lifetime, controller),
  };
}

/** Whether the client has undone the response's codings: every one of them, or it leaves them all. */
function decodedBy(decodes: readonly string[], headers: Headers): boolean {
  const codings = headers.get("content-encoding");
  if (codings === null) return false;
  return codings.split(",").every((coding) => decodes.includes(coding.trim().toLowerCase()));
}

/** Makes the headers true of the decoded bytes: no coding, another length, and no longer the same octets (RFC 9110 §8.8.1). */
function withoutCoding(headers: HeaderList): HeaderList {
  const left: HeaderList = [];
  for (let i = 0; i < headers.length; i += 2) {
    const name = headers[i] as string;
    const value = headers[i + 1] as string;
    if (name === "content-encoding" || name === "content-length") continue;
    left.push(name, name === "etag" && value.startsWith('"') ? `W/${value}` : value);
  }
  return left;
}

/** Hands the body on and tells the lifetime of it. */
function watch(
  body: ReadableStream<Uint8Array>,
  lifetime: Lifetime,
  controller: AbortController,
): ReadableStream<Uint8Array> {
  const reader = body.getReader();
  return new ReadableStream<Uint8Array>(
    {
      async pull(sink) {
        try {
          lifetime.hold(false);
          const { done, value } = await reader.read();
          lifetime.hold(true);
          if (!done) return sink.enqueue(value);
          lifetime.end();
          sink.close();
        } catch (thrown) {
          const error = lifetime.error ?? incomplete(thrown);
          lifetime.end();
          sink.error(error);
        }
      },
      async cancel(reason) {
        lifetime.end();
        controller.abort(reason);
        await reader.cancel(reason).catch(() => {});
      },
    },
    { highWaterMark: 0 },
  );
}

function incomplete(cause: unknown): ProxyError {
  return new ProxyError("http_response_incomplete", { message: "the upstream broke off", cause });
}

/** fetch hides most of what went wrong; what it shows is in the cause's code on some runtimes. */
function toNetworkError(thrown: unknown): ProxyError {
  if (thrown instanceof ProxyError) return thrown;
  const cause = (thrown as { cause?: unknown } | null)?.cause ?? thrown;
  const code = (cause as { code?: unknown } | null)?.code;
  if (code === "ECONNREFUSED" || code === "ConnectionRefused") {
    return new ProxyError("connection_refused", { cause: thrown });
  }
  if (code === "ENOTFOUND" || code === "EAI_AGAIN") return new ProxyError("dns_error", { cause: thrown });
  if (thrown instanceof TypeError) return new ProxyError("connection_terminated", { cause: thrown });
  return toProxyError(thrown);
}
