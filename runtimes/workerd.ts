import { amend } from "../src/fields/amend.ts";
import type { FetchTarget } from "../src/request/app.ts";
import { ProxyError, unsendable } from "../src/error.ts";
import { createFetchTransport, type FetchClient } from "../src/fetch/fetch.ts";
import { getHeader, toHeaders } from "../src/fields/headers.ts";
import { WebIncoming } from "../src/request/incoming.ts";
import { type AppClient, createInProcessTransport } from "../src/fetch/inprocess.ts";
import { refusePoolOptions } from "../src/options/check.ts";
import type { PoolOptions } from "../src/options/pooloptions.ts";
import {
  bindProxy,
  bindProxyFetch,
  createRoute,
  type CreateProxyOptions,
  type Proxy,
  type ProxyFetch,
  type Runtime,
} from "../src/proxy.ts";
import type {
  Capabilities,
  UpstreamRequest,
  OriginalFields,
  UpstreamResponse,
  Transport,
} from "../src/transport.ts";

export * from "../src/index.ts";

/** What is used of workerd, so that no types package is needed. */
declare class FixedLengthStream extends TransformStream<Uint8Array, Uint8Array> {
  constructor(length: number);
}

/** Bodies that nobody reads pass as they are, coded or not. */
const CAPABILITIES: Capabilities = { decodes: [], host: false, unixSocket: false, tls: false };

/** How workerd's own clients differ from others: its `fetch`, and the stubs of Workers and Durable Objects. */
const CLIENT: Omit<FetchClient, "fetch"> = {
  name: "workerd",
  capabilities: CAPABILITIES,
  prepare,
  toError,
  amendsHeaders: true,
  handsBodiesThrough: true,
  rawBodies: { encodeResponseBody: "manual" },
  isOwn,
  createPipe,
};

/**
 * Requests through workerd's `fetch`, whose connections are its own business.
 * @throws TypeError for any pool option but `connectTimeout`, which has no effect
 */
export function createTransport(options: PoolOptions = {}): Transport {
  refusePoolOptions(options, "Workers have no connections of their own");
  return createFetchTransport({ ...CLIENT, fetch: (url, init) => fetch(url, init) });
}

function createPipe(length: number): TransformStream<Uint8Array, Uint8Array> {
  return new FixedLengthStream(length);
}

/**
 * Whether an app is a stub of another Worker or of a Durable Object: workerd sends requests to those as it does to the
 * network. Their classes are not global, so the name of the class decides.
 */
function isStub(app: FetchTarget): boolean {
  return STUB.test(Object.prototype.toString.call(app));
}
const STUB = /^\[object (?:Fetcher|DurableObject|Loopback\w+)\]$/;

/**
 * How an app in the same isolate is called, which is a plain function call for workerd. The proxy reads the app's bodies,
 * so that a client's leaving aborts the app's `signal`. It does not read encoded ones: whether their bytes are encoded
 * already is known to workerd alone.
 */
const SCRIPT: AppClient = {
  capabilities: CAPABILITIES,
  toError,
  amendsHeaders: true,
  handsBodiesThrough: true,
  watchesBodies: true,
  isOwn,
  createPipe,
  note(response) {
    hasSources = true;
    sources.set(response.headers, response);
  },
};

/** The responses of apps in the same isolate, by their fields. */
const sources = new WeakMap<Headers, Response>();
/** Whether there was any: the lookup is spared otherwise. */
let hasSources = false;

function clientFor(app: FetchTarget): AppClient {
  if (!isStub(app)) return SCRIPT;
  const stub = app as unknown as { fetch(url: string, init: RequestInit): Promise<Response> };
  // A `Request` would not remember `encodeResponseBody`.
  return { ...CLIENT, fetch: (url, init) => stub.fetch(url, init) };
}

function prepare({ method }: UpstreamRequest): void {
  // It would be sent in upper case.
  if (method !== method.toUpperCase()) throw unsendable(method);
}

/** Whether a stream is workerd's own, such as a request's body: those are read into buffers. */
function isOwn(stream: ReadableStream): boolean {
  try {
    stream.getReader({ mode: "byob" }).releaseLock();
    return true;
  } catch {
    return false;
  }
}

function toError(thrown: unknown, { method }: UpstreamRequest): ProxyError | undefined {
  const { message = "" } = thrown as Partial<Error>;
  if (message.startsWith("Invalid HTTP method")) return unsendable(method);
  // It does not say more of a connection that was refused or broke, or of what was no HTTP.
  if (message === "Network connection lost.") {
    return new ProxyError("connection_terminated", { message, cause: thrown });
  }
  // A name that is not known, a network that is not allowed, TLS that failed.
  if (message.startsWith("internal error")) {
    return new ProxyError("destination_unavailable", { message, cause: thrown });
  }
  return undefined;
}

/**
 * To listen to a request's signal costs as much as to read and write all of its fields, and most requests are
 * over before. Where the Worker does nothing else, workerd itself ends them; a client that left is noticed within 1 s.
 */
const LISTEN_AFTER = 500;

class WorkerIncoming extends WebIncoming {
  readonly original: OriginalFields;
  readonly listenAfter: number = LISTEN_AFTER;

  constructor(request: Request) {
    super(request, addressOf(request));
    this.original = { headers: request.headers, list: this.headers };
  }

  override version(): string {
    const { cf } = this.request() as { cf?: Cf };
    return cf?.httpProtocol?.replace("HTTP/", "") || super.version();
  }
}

/** What workerd adds to a request; no client can send it. */
interface Cf {
  /** Address and port of the peer, where workerd itself is the server. */
  clientIp?: string;
  /** The data center, on Cloudflare. */
  colo?: string;
  /** `HTTP/2`, on Cloudflare. */
  httpProtocol?: string;
}

/** Once known it stays so, and asking costs as much as all the fields. */
let onCloudflare = false;

function addressOf(request: Request): string | undefined {
  if (!onCloudflare) {
    const { cf } = request as { cf?: Cf };
    if (cf?.clientIp) return cf.clientIp.replace(/:\d+$/, "").replace(/^\[|\]$/g, "");
    onCloudflare = cf?.colo !== undefined;
  }
  // There it is overwritten on the way in. Elsewhere it would be the client's own word.
  return onCloudflare ? (request.headers.get("cf-connecting-ip") ?? undefined) : undefined;
}

/** workerd's own: whether `Content-Encoding` is still to be applied to the body, or tells what it is already. */
interface Init extends ResponseInit {
  encodeBody: "automatic" | "manual";
}

function respond({
  status,
  statusText,
  headers,
  original,
  body,
  isEncoded,
}: UpstreamResponse): Response {
  const init: Init = {
    status,
    // Any other it refuses.
    statusText: /^[ -~]*$/.test(statusText) ? statusText : "",
    headers: original ? amend(original, headers) : toHeaders(headers),
    encodeBody: isEncoded ? "manual" : "automatic",
  };
  const bytes = body?.whole() as BodyInit | undefined;
  const content = bytes ?? body?.stream() ?? null;
  const source = hasSources && original ? sources.get(original.headers) : undefined;
  if (source !== undefined && getHeader(headers, "content-encoding") !== undefined) {
    return withClone(respondLike(source, content, init));
  }
  const response = new Response(content, init);
  return isEncoded ? withClone(response) : response;
}

/**
 * A copy of an app's response with other fields. Only a copy keeps whether the body's bytes are encoded already
 * (`encodeBody: "manual"`) or workerd is to encode them: no property tells.
 */
function respondLike(source: Response, content: BodyInit | null, init: Init): Response {
  const response = new Response(content, source);
  const names = Array.from(response.headers.keys());
  for (const name of names) response.headers.delete(name);
  for (const [name, value] of init.headers as Headers) response.headers.append(name, value);
  return response;
}

/** workerd forgets that the body of a clone is already encoded: a clone that is put into a cache would be encoded twice. */
function withClone(response: Response): Response {
  const clone = (): Response => {
    const { body } = Response.prototype.clone.call(response);
    // Made from this one, it knows.
    return withClone(new Response(body, response));
  };
  return Object.defineProperty(response, "clone", { value: clone });
}

const runtime: Runtime = {
  read: (request) => new WorkerIncoming(request),
  createTransport,
  respond,
  inProcess: createInProcessTransport(clientFor),
};

/**
 * Forwards a request to a target and resolves to the response to return.
 * @example export default { fetch: (request) => proxyFetch(request, "https://api.example") };
 */
export const proxyFetch: ProxyFetch = bindProxyFetch(runtime);

/**
 * A proxy with its options compiled once.
 * @throws TypeError that names a bad option and the fix
 * @example export default createProxy({ target: "https://api.example" });
 */
export function createProxy(options: CreateProxyOptions): Proxy {
  return bindProxy(createRoute(options, runtime), runtime);
}
