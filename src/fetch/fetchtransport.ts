import { copyBytes } from "../body/memory.ts";
import { StreamBody } from "../body/stream.ts";
import { placeError, ProxyError, toProxyError, unsendable } from "../error.ts";
import { amend } from "../fields/amend.ts";
import {
  getHeader,
  isEventStream,
  toHeaderList,
  toHeaders,
  trimOws,
  type HeaderList,
} from "../fields/headers.ts";
import { badOption, cannotSetHost } from "../misuse.ts";
import type { UpstreamRequest, UpstreamResponse } from "../transport/message.ts";
import type { Capabilities, Transport } from "../transport/port.ts";
import type { HandedSocket } from "../transport/tunnel.ts";
import {
  abortFetch,
  type FetchAttempt,
  stopRequestStream,
  type StreamClient,
  toRequestStream,
} from "./requeststream.ts";
import { toResponseStream } from "./responsestream.ts";

/** The runtime's `fetch`, or a function with the same interface. */
export type FetchLike = (url: string, init: RequestInit) => Response | Promise<Response>;

/** A `fetch` function that sends requests, and its differences from the standard. */
export interface FetchClient extends StreamClient {
  readonly name: string;
  readonly capabilities: Capabilities;
  readonly fetch: FetchLike;
  /** Converts an error that only this `fetch` throws; returns undefined for an error that it does not recognize. */
  readonly toError?: (thrown: unknown) => ProxyError | undefined;
  /**
   * Whether the runtime's `Headers` hold more than the list that is read from them, such as the case of names. A request is
   * then sent with a changed copy of the incoming request's `Headers`, instead of `Headers` made from the list.
   */
  readonly amendsHeaders?: boolean;
  /**
   * Whether the response body is the stream that `fetch` returned, so that the runtime moves and cancels the body
   * without running JavaScript. A body that a deadline or a `signal` may abort is read by the proxy instead, unless
   * reading would decode it.
   */
  readonly handsBodiesThrough?: boolean;
  /**
   * Whether the proxy reads every response body that has no content coding, even if no deadline and no `signal` may abort
   * it. When the server cancels such a body, the proxy aborts the request; the runtime would not do that.
   */
  readonly watchesBodies?: boolean;
  /**
   * Whether a response without a URL was constructed by an app, so that its body was not decoded. It is not set for a
   * function that replaces the runtime's `fetch`, because that function may return a copy of a decoded response, and a
   * copy has no URL either.
   */
  readonly constructsResponses?: boolean;
  /** Returns the WebSocket of a response; undefined for a `fetch` that cannot switch a connection. */
  readonly takeWebSocket?: (response: Response) => HandedSocket | undefined;
  /**
   * Properties for `RequestInit`, for a runtime that decodes a response body when JavaScript reads it. With these
   * properties, JavaScript reads the encoded bytes.
   */
  readonly rawBodies?: object;
}

/** Deno's `fetch` decodes fewer codings than that of other runtimes, and leaves some responses encoded (`isLeftEncoded`). */
const isOnDeno = "Deno" in globalThis;
/** On Deno and Bun, `fetch` leaves a body with several codings encoded; on Node, it decodes all codings of a body, or none. */
const decodesOne = isOnDeno || "Bun" in globalThis;

/**
 * The capabilities that an unknown `fetch` is assumed to have: it may decode every coding that a known `fetch` decodes, and has
 * only the features of the Fetch standard.
 */
export const STANDARD: Capabilities = {
  decodes: isOnDeno ? ["gzip", "br"] : ["gzip", "x-gzip", "deflate", "br", "zstd"],
  host: false,
  unixSocket: false,
  tls: false,
};

/** Creates a transport that sends requests through a function with the interface of `fetch`. */
export function createFetchTransport(client: FetchClient): Transport {
  // Take `fetch` out of its object, because some runtimes throw if the global `fetch` is called as a method of another
  // object.
  const { name, capabilities, fetch: send } = client;
  return {
    name,
    capabilities,
    handsBodiesThrough: client.handsBodiesThrough ?? false,
    async send(request, scope) {
      if (request.host !== undefined) {
        scope.end();
        throw cannotSetHost("onRequest` or `interceptors", name);
      }
      const controller = new AbortController();
      const attempt: FetchAttempt<FetchClient> = {
        client,
        scope,
        controller,
        isUploading: false,
        isSettled: false,
      };
      let reject: ((error: ProxyError) => void) | undefined;
      // `stop` is a variable, because V8 allocates a function in the old generation if its literal is assigned to a
      // property. The function refers to the request, which would then stay in memory until the next major garbage
      // collection.
      const stop = (error: ProxyError): void => {
        abortFetch(attempt, error);
        reject?.(error);
      };
      scope.onAbort({ fail: stop });
      try {
        // No URL can express the request target of `OPTIONS *`.
        if (request.path === "*") throw unsendable("OPTIONS *");
        const init = toInit(request, attempt);
        const isRaw = client.rawBodies !== undefined && scope.mayAbort(false);
        if (isRaw) Object.assign(init, client.rawBodies);
        if (scope.error !== undefined) throw scope.error;
        const response = await new Promise<Response>((resolve, rejected) => {
          reject = rejected;
          const fetched = send(request.upstream.origin + request.path, init);
          const receive = (received: Response): void =>
            controller.signal.aborted ? discardLate(received, client) : resolve(received);
          Promise.resolve(fetched).then(receive).catch(rejected);
        });
        attempt.isSettled = true;
        return toUpstreamResponse(response, attempt, request.headers, isRaw);
      } catch (thrown) {
        attempt.isSettled = true;
        const error = scope.error ?? toNetworkError(thrown, client);
        placeError(error, scope.upstream);
        scope.end();
        stopRequestStream(attempt);
        throw error;
      }
    },
  };
}

/**
 * Cancels the body of a response that arrives after the abort, and closes its WebSocket, because some functions with the
 * interface of `fetch` ignore the signal.
 */
function discardLate(response: Response, client: FetchClient): void {
  response.body?.cancel().catch(() => {});
  client.takeWebSocket?.(response)?.destroy();
}

function toInit(request: UpstreamRequest, attempt: FetchAttempt<FetchClient>): RequestInit {
  const { client, controller } = attempt;
  const { method, hints, body, contentLength, upgrade } = request;
  const headers =
    upgrade === undefined ? request.headers : [...request.headers, "upgrade", upgrade];
  checkMethod(method);
  checkValues(headers);
  const init: RequestInit & { duplex?: "half" } = {
    method,
    headers:
      client.amendsHeaders && hints?.fields ? amend(hints.fields, headers) : toHeaders(headers),
    redirect: "manual",
    signal: controller.signal,
  };
  if (body !== null && (method === "GET" || method === "HEAD"))
    throw unsendable(`${method} with a body`);
  if (body !== null) {
    const bytes = body.whole();
    // Pass a copy, because the bytes may be sent again, and a `fetch` that the app has written may change or transfer
    // them.
    init.body = bytes ? copyBytes(bytes) : toRequestStream(body, contentLength, attempt);
    // The Fetch standard requires `duplex` for a stream (node#46221).
    init.duplex = "half";
  }
  return init;
}

/** The methods that every `fetch` sends unchanged. */
const USUAL_METHOD = /^(?:GET|HEAD|POST|PUT|PATCH|DELETE|OPTIONS)$/;

/**
 * Refuses a method that `fetch` cannot send, or would change: Bun sends an unknown method as GET, and Bun and workerd send some
 * methods in upper case.
 * @throws ProxyError 501 for a method that a `Request` of this runtime cannot have
 */
function checkMethod(method: string): void {
  if (USUAL_METHOD.test(method)) return;
  try {
    // The Fetch standard forbids CONNECT and TRACE, but Bun and workerd do not.
    const isAllowed = method !== "CONNECT" && method !== "TRACE";
    if (isAllowed && new Request("http://a", { method }).method === method) return;
  } catch {
    // This runtime refuses the method.
  }
  throw unsendable(method);
}

/**
 * Refuses field values with control characters: Bun's `fetch` sends them unchanged, and other `fetch` functions throw.
 * @throws ProxyError that names the field
 */
function checkValues(list: HeaderList): void {
  for (let i = 1; i < list.length; i += 2) {
    // oxlint-disable-next-line no-control-regex
    if (/[\u0000-\u0008\u000a-\u001f\u007f]/.test(list[i] as string)) {
      throw new ProxyError("http_request_error", { message: `bad characters in ${list[i - 1]}` });
    }
  }
}

/** @param isRaw whether `rawBodies` was passed to `fetch`, so that JavaScript reads the encoded bytes of the body */
function toUpstreamResponse(
  response: Response,
  attempt: FetchAttempt<FetchClient>,
  sent: HeaderList,
  isRaw: boolean,
): UpstreamResponse {
  const { status, statusText, body } = response;
  const { client, scope } = attempt;
  const headers = toHeaderList(response.headers);
  const webSocket = status === 101 ? client.takeWebSocket?.(response) : undefined;
  if (webSocket !== undefined) {
    // End the scope, because the runtime itself moves the messages of the WebSocket.
    scope.end();
    const hints = { fields: { headers: response.headers, list: headers } };
    return { status, statusText, headers, body: null, webSocket, hints };
  }
  // Read `url` last, because each read creates a string.
  const isDecoded =
    wasDecoded(client.capabilities.decodes, headers) &&
    (client.constructsResponses === true ? response.url !== "" : !isLeftEncoded(sent));
  // If the proxy read an encoded body, the runtime would decode it, except where `rawBodies` prevents that.
  const readDecodes = !isRaw && getHeader(headers, "content-encoding") !== undefined;
  const isEvents = isEventStream(headers);
  const watches = client.watchesBodies || scope.mayAbort(isEvents);
  const isThrough = client.handsBodiesThrough && (readDecodes || !watches);
  if (body === null || isThrough) scope.end();
  if (body === null) stopRequestStream(attempt);
  else scope.headersReceived(isEvents);
  const length = isDecoded ? undefined : readLength(headers);
  return {
    status,
    statusText,
    headers: isDecoded ? withoutCoding(headers) : headers,
    body: body && new StreamBody(isThrough ? body : toResponseStream(body, length, attempt)),
    hints: client.amendsHeaders
      ? { fields: { headers: response.headers, list: headers }, isEncoded: isRaw }
      : undefined,
  };
}

function readLength(headers: HeaderList): number | undefined {
  const length = getHeader(headers, "content-length");
  return length !== undefined && /^\d{1,15}$/.test(length) ? Number(length) : undefined;
}

/** Returns whether `fetch` has decoded the body, if it decodes these codings. */
function wasDecoded(decodes: readonly string[], headers: HeaderList): boolean {
  const codings = getHeader(headers, "content-encoding");
  if (codings === undefined) return false;
  const list = decodesOne ? [codings] : codings.split(",");
  return list.every((coding) => decodes.includes(trimOws(coding).toLowerCase()));
}

/**
 * Returns whether `fetch` decodes no response to a request with these fields. The request of an app in this process is not the
 * one that the app's `fetch` has sent, so its fields do not matter.
 */
function isLeftEncoded(sent: HeaderList): boolean {
  const accepted = getHeader(sent, "accept-encoding");
  return isOnDeno && (accepted === "identity" || getHeader(sent, "range") !== undefined);
}

/**
 * Returns the fields of a decoded body, without content coding and length. A strong `ETag` becomes weak, because it
 * identifies the encoded bytes (RFC 9110 §8.8.1).
 */
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
 * Matches the messages with which a method fails if it is called without its object: a method of a built-in class of
 * workerd, Deno, Node or Bun, and a method in JavaScript that reads a property of `this`, in V8 and in JavaScriptCore.
 * No network error has such a message.
 */
const UNBOUND =
  /illegal invocation|of undefined \(reading|value of "this"|evaluating 'this\.|can only (?:call|be called)/i;

/**
 * Converts an error that `fetch` has thrown to a `ProxyError`. In the standard, every network failure is a TypeError
 * without details; some runtimes give details in `error.cause.code`.
 * @throws TypeError if the option `fetch` is a method that was passed without its object
 */
function toNetworkError(thrown: unknown, client: FetchClient): ProxyError {
  if (thrown instanceof ProxyError) return thrown;
  if (thrown instanceof TypeError && UNBOUND.test(thrown.message)) {
    throw badOption(
      "fetch",
      `called without its object it fails (${thrown.message}); bind it, or wrap it as in ` +
        "`fetch: (url, init) => env.SERVICE.fetch(url, init)`",
    );
  }
  const known = client.toError?.(thrown);
  if (known !== undefined) return known;
  const cause = (thrown as { cause?: unknown } | null)?.cause ?? thrown;
  const { code, name } = Object(cause) as { code?: unknown; name?: unknown };
  // The errors of Deno's fetch have no codes.
  const text = cause instanceof Error ? cause.message : "";
  const isRefused = code === "ECONNREFUSED" || code === "ConnectionRefused";
  if (isRefused || /connection refused/i.test(text)) {
    return new ProxyError("connection_refused", { cause: thrown });
  }
  if (code === "ENOTFOUND" || code === "EAI_AGAIN" || /\bdns error\b/.test(text)) {
    return new ProxyError("dns_error", { cause: thrown });
  }
  if (code === "ERR_ACCESS_DENIED" || name === "NotCapable") {
    return new ProxyError("destination_ip_prohibited", { cause: thrown });
  }
  if (thrown instanceof TypeError)
    return new ProxyError("connection_terminated", { cause: thrown });
  return toProxyError(thrown);
}
