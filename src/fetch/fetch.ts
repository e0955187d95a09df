import { amend } from "../fields/amend.ts";
import { copyBytes } from "../body/bytes.ts";
import { StreamBody } from "../body/stream.ts";
import type { Scope } from "../exchange/scope.ts";
import { ProxyError, toProxyError, unsendable } from "../error.ts";
import { getHeader, isEventStream, toHeaderList, toHeaders } from "../fields/headers.ts";
import { badOption } from "../options/misuse.ts";
import type {
  Capabilities,
  HeaderList,
  UpstreamRequest,
  UpstreamResponse,
  Transport,
} from "../transport.ts";
import { stopUpload, toUpload, type UploadClient } from "./upload.ts";
import { watch } from "./watch.ts";
import { trimOws } from "../fields/headers.ts";

/** A `fetch`, or a function of its shape. */
export type FetchLike = (url: string, init: RequestInit) => Response | Promise<Response>;

/** A client with a `fetch` interface, and how it differs from others. */
export interface FetchClient extends UploadClient {
  readonly name: string;
  readonly capabilities: Capabilities;
  readonly fetch: FetchLike;
  /**
   * Called before a request is sent.
   * @throws ProxyError for what this client would send wrongly
   */
  readonly prepare?: (request: UpstreamRequest) => void;
  /** What an error of this client's means; undefined if it does not know either. */
  readonly toError?: (thrown: unknown, request: UpstreamRequest) => ProxyError | undefined;
  /** Whether its `Headers` hold more than a list read from them: they are changed then, not made anew. */
  readonly amendsHeaders?: boolean;
  /**
   * Whether bodies go back to the server as they are, unread: it is then the
   * runtime that moves and cancels them. Not where somebody wants to watch them.
   */
  readonly handsBodiesThrough?: boolean;
  /**
   * Whether a body that is not encoded is read here even where no deadline and no `signal` can stop it: the response's
   * reader can then abort the request, which the runtime would not do for it.
   */
  readonly watchesBodies?: boolean;
  /** What `RequestInit` says to get encoded bodies as they are when a script reads them, where the client would decode them. */
  readonly rawBodies?: object;
}

/** Of any fetch it must be assumed that it decodes what some fetch is known to decode, and can do no more than the standard. */
export const STANDARD: Capabilities = {
  decodes: ["gzip", "x-gzip", "deflate", "br", "zstd"],
  host: false,
  unixSocket: false,
  tls: false,
};

/** A transport over any `fetch`. */
export function createFetchTransport(client: FetchClient): Transport {
  // Called without a receiver: some runtimes take no other for the global fetch.
  const { name, capabilities, fetch: send } = client;
  return {
    name,
    capabilities,
    handsBodiesThrough: client.handsBodiesThrough ?? false,
    async send(request, scope) {
      const controller = new AbortController();
      let reject: ((error: ProxyError) => void) | undefined;
      // Made before it is assigned: as a literal there V8 makes it old, and it keeps the request.
      const stop = (error: ProxyError): void => {
        controller.abort(error);
        reject?.(error);
      };
      scope.onAbort({ fail: stop });
      try {
        client.prepare?.(request);
        const init = toInit(request, scope, controller, client);
        const raw = client.rawBodies !== undefined && scope.mayAbort(false);
        if (raw) Object.assign(init, client.rawBodies);
        if (scope.error !== undefined) throw scope.error;
        const response = await new Promise<Response>((resolve, rejected) => {
          reject = rejected;
          const answer = send(request.upstream.origin + request.path, init);
          const take = (late: Response): void =>
            scope.error === undefined ? resolve(late) : discard(late);
          Promise.resolve(answer).then(take, rejected);
        });
        return toReply(response, scope, controller, client, raw);
      } catch (thrown) {
        const error = scope.error ?? toNetworkError(thrown, request, client);
        scope.end();
        stopUpload(controller);
        throw error;
      }
    },
  };
}

/** Lets go of an answer that came although the request was aborted: not every function listens to its signal. */
function discard({ body }: Response): void {
  body?.cancel().catch(() => {});
}

function toInit(
  request: UpstreamRequest,
  scope: Scope,
  controller: AbortController,
  client: FetchClient,
): RequestInit {
  const { method, headers, original, body } = request;
  if (method === "CONNECT" || method === "TRACE" || method === "TRACK") throw unsendable(method);
  checkValues(headers);
  const init: RequestInit & { duplex?: "half" } = {
    method,
    headers: client.amendsHeaders && original ? amend(original, headers) : toHeaders(headers),
    redirect: "manual",
    signal: controller.signal,
  };
  if (body !== null && method !== "GET" && method !== "HEAD") {
    const bytes = body.whole();
    // A copy: these bytes may be sent again, and the fetch may be the app's own.
    init.body = bytes ? copyBytes(bytes) : toUpload(body, request, scope, controller, client);
    // Required by the Fetch standard for a stream (node#46221).
    init.duplex = "half";
  }
  return init;
}

/** Some clients send control characters as they are (Bun), others throw. */
function checkValues(list: HeaderList): void {
  for (let i = 1; i < list.length; i += 2) {
    // oxlint-disable-next-line no-control-regex
    if (/[\u0000-\u0008\u000a-\u001f\u007f]/.test(list[i] as string)) {
      throw new ProxyError("http_request_error", { message: `bad characters in ${list[i - 1]}` });
    }
  }
}

function toReply(
  response: Response,
  scope: Scope,
  controller: AbortController,
  client: FetchClient,
  raw: boolean,
): UpstreamResponse {
  const { status, statusText, body } = response;
  const headers = toHeaderList(response.headers);
  // What a script made of bytes has no URL, and nobody has undone anything for it.
  const decoded = response.url !== "" && wasDecoded(client.capabilities.decodes, headers);
  // Reading an encoded body decodes it, unless the client was told otherwise.
  const decodes = !raw && getHeader(headers, "content-encoding") !== undefined;
  const events = isEventStream(headers);
  const watches = client.watchesBodies || scope.mayAbort(events);
  const through = client.handsBodiesThrough && (decodes || !watches);
  if (body === null || through) scope.end();
  if (body === null) stopUpload(controller);
  else scope.headersReceived(events);
  const createPipe = decoded ? undefined : client.createPipe;
  const length = lengthOf(headers);
  return {
    status,
    statusText,
    headers: decoded ? withoutCoding(headers) : headers,
    original: client.amendsHeaders ? { headers: response.headers, list: headers } : undefined,
    body:
      body && new StreamBody(through ? body : watch(body, length, scope, controller, createPipe)),
    isEncoded: raw,
  };
}

function lengthOf(headers: HeaderList): number | undefined {
  const length = getHeader(headers, "content-length");
  return length !== undefined && /^\d{1,15}$/.test(length) ? Number(length) : undefined;
}

/** Whether the client has undone the response's codings: it does all of them, or none. */
function wasDecoded(decodes: readonly string[], headers: HeaderList): boolean {
  const codings = getHeader(headers, "content-encoding");
  if (codings === undefined) return false;
  return codings.split(",").every((coding) => decodes.includes(trimOws(coding).toLowerCase()));
}

/** Makes the headers true of decoded bytes: no coding, another length, and not the same octets (RFC 9110 §8.8.1). */
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

/**
 * What engines say when a method is called without its object: workerd, Deno and Node's classes,
 * then code that reads from `this`, in V8 and in JavaScriptCore. No network error reads so.
 */
const UNBOUND =
  /illegal invocation|of undefined \(reading|value of "this"|evaluating 'this\.|can only (?:call|be called)/i;

/** fetch hides most of what went wrong; what it shows is in the cause's code on some runtimes. */
function toNetworkError(
  thrown: unknown,
  request: UpstreamRequest,
  client: FetchClient,
): ProxyError {
  if (thrown instanceof ProxyError) return thrown;
  if (thrown instanceof TypeError && UNBOUND.test(thrown.message)) {
    throw badOption(
      "fetch",
      `called without its object it fails (${thrown.message}); bind it, or wrap it as in ` +
        "`fetch: (url, init) => env.SERVICE.fetch(url, init)`",
    );
  }
  const known = client.toError?.(thrown, request);
  if (known !== undefined) return known;
  const cause = (thrown as { cause?: unknown } | null)?.cause ?? thrown;
  const code = (cause as { code?: unknown } | null)?.code;
  // Deno's fetch has no codes.
  const text = cause instanceof Error ? cause.message : "";
  const isRefused = code === "ECONNREFUSED" || code === "ConnectionRefused";
  if (isRefused || /connection refused/i.test(text)) {
    return new ProxyError("connection_refused", { cause: thrown });
  }
  if (code === "ENOTFOUND" || code === "EAI_AGAIN" || /\bdns error\b/.test(text)) {
    return new ProxyError("dns_error", { cause: thrown });
  }
  if (thrown instanceof TypeError)
    return new ProxyError("connection_terminated", { cause: thrown });
  return toProxyError(thrown);
}
