import { ProxyError } from "../../src/error.ts";
import type { FetchClient, FetchLike } from "../../src/fetch/fetchtransport.ts";
import type { AppClient } from "../../src/fetch/inprocess.ts";
import type { FetchTarget } from "../../src/target/app.ts";
import type { Capabilities } from "../../src/transport/port.ts";
import type { HandedSocket } from "../../src/transport/tunnel.ts";
import { largeBodies } from "./readrequest.ts";
import { rememberResponse } from "./respond.ts";

/** A class of workerd. It is declared here, so that no types package is needed. */
declare class FixedLengthStream extends TransformStream<Uint8Array, Uint8Array> {
  constructor(length: number);
}

/** `decodes` is empty, because workerd forwards an encoded body unchanged while no JavaScript code reads it. */
export const WORKERS_CAPABILITIES: Capabilities = {
  background: false,
  decodes: [],
  host: false,
  unixSocket: false,
  tls: false,
  upgrade: true,
};

/** The WebSocket that a response with the status 101 has on workerd. */
interface WorkerSocket {
  accept(): void;
  close(code?: number, reason?: string): void;
}

/**
 * Returns the WebSocket of a response. `destroy` calls `accept` first, because workerd cannot close a WebSocket that was not
 * accepted.
 */
function takeWebSocket(response: Response): HandedSocket | undefined {
  const { webSocket } = response as { webSocket?: WorkerSocket | null };
  if (!webSocket) return undefined;
  return {
    socket: webSocket,
    destroy() {
      webSocket.accept();
      webSocket.close(GOING_AWAY);
    },
  };
}

/** The close code for an upstream whose 101 does not reach the client, because the client gets another response. */
const GOING_AWAY = 1001;

/** The members that all descriptions in this file share. */
const COMMON = {
  capabilities: WORKERS_CAPABILITIES,
  toError: toWorkerdError,
  amendsHeaders: true,
  handsBodiesThrough: true,
  readLeft,
  isPipeable,
  createPipe: createFixedLengthPipe,
  takeWebSocket,
} as const;

/** Describes a `fetch` of workerd: the global one, or that of a stub of another Worker or of a Durable Object. */
export function describeNativeClient(fetch: FetchLike): FetchClient {
  return {
    ...COMMON,
    name: "workerd",
    fetch,
    printsFailures: true,
    rawBodies: { encodeResponseBody: "manual" },
  };
}

/**
 * Describes how an app in the same isolate is called. For workerd, that is a plain function call, so workerd does not inform
 * the app when the client disconnects. Therefore the proxy reads the bodies of the app's responses, and aborts the app's
 * `signal` itself. The proxy does not read encoded bodies, because only workerd knows whether their bytes are encoded already.
 * The length of a body needs no check: the pipe of `createPipe` fails if the body has another length.
 */
const APP_CLIENT: AppClient = { ...COMMON, watchesBodies: true, receive: rememberResponse };

/** Describes how requests are sent to an app: to a stub as to the network, to any other app by a function call. */
export function describeAppClient(app: FetchTarget): AppClient {
  if (!isStub(app)) return APP_CLIENT;
  const stub = app as unknown as { fetch: FetchLike };
  // Pass a URL and an init object to the stub, because a `Request` would lose the member `encodeResponseBody`.
  return describeNativeClient((url, init) => stub.fetch(url, init));
}

const STUB = /^\[object (?:Fetcher|DurableObject|Loopback\w+)\]$/;

/**
 * Whether an app is a stub of another Worker or of a Durable Object: workerd sends requests to a stub as it does to the
 * network. The classes of stubs are not global, so the name of the class decides.
 */
function isStub(app: FetchTarget): boolean {
  return STUB.test(Object.prototype.toString.call(app));
}

/** The key of the property that `readLeft` reads; undefined before the first call, and if workerd has no such property. */
let lengthKey: symbol | undefined;

/**
 * Returns the number of bytes that remain in a stream, if workerd knows this number, as it does for the body of an incoming
 * request.
 *
 * Streams of workerd have a property for `util.inspect` with this number, which is not documented. In a version without it, the
 * key is undefined, no stream has a property with that key, and the proxy reads every body. To test instead whether a stream
 * has a BYOB reader would cost a tenth of the time of a small request, and would also accept byte streams that JavaScript code
 * has made.
 */
function readLeft(stream: ReadableStream): bigint | undefined {
  lengthKey ??= Object.getOwnPropertySymbols(ReadableStream.prototype).find(
    (key) => key.description === "length",
  );
  return Reflect.get(stream, lengthKey as symbol) as bigint | undefined;
}

/**
 * Whether workerd can pipe the rest of a stream to a `FixedLengthStream`. If the stream is the output of another stream,
 * workerd cannot, and leaves both streams locked. So the stream must be the body of a request that no script has made.
 */
function isPipeable(stream: ReadableStream): boolean {
  try {
    // `delete` throws for the immutable `Headers` of a request that workerd has received, even if the field does not exist. For
    // the `Headers` of a request that a script has made, `delete` does nothing.
    largeBodies.get(stream)?.delete("fetchway-immutable");
    return false;
  } catch {
    return true;
  }
}

/**
 * Makes a pipe for a stream whose length is known, so that workerd sends `Content-Length`. Without the pipe, workerd sends the
 * stream with chunked coding.
 */
function createFixedLengthPipe(length: number): TransformStream<Uint8Array, Uint8Array> {
  return new FixedLengthStream(length);
}

/** Classifies an exception of workerd by its message, because workerd's exceptions have no codes. */
function toWorkerdError(thrown: unknown): ProxyError | undefined {
  const { message = "" } = thrown as Partial<Error>;
  // workerd has one message for a refused connection, a broken connection, and a response that is not HTTP.
  if (message === "Network connection lost.") {
    return new ProxyError("connection_terminated", { message, cause: thrown });
  }
  // workerd has one message for an unknown name, a network that is not allowed, and a failed TLS handshake.
  if (message.startsWith("internal error")) {
    return new ProxyError("destination_unavailable", { message, cause: thrown });
  }
  return undefined;
}
