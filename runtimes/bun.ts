import type { Listener } from "../src/exchange/scope.ts";
import { copyBytes } from "../src/body/bytes.ts";
import { getHeader, toHeaders } from "../src/fields/headers.ts";
import { HttpTransport } from "../src/http1/client.ts";
import { type Context, WebIncoming } from "../src/request/incoming.ts";
import { checkPoolOptions } from "../src/options/check.ts";
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
import type { HeaderList, UpstreamResponse, Transport } from "../src/transport.ts";
import { bufferCodec } from "./sockets/buffercodec.ts";
import { NetConnector } from "./sockets/connect.ts";
import { assertVersion } from "./sockets/versions.ts";

export * from "../src/index.ts";

/**
 * Connections to upstreams, through an HTTP/1.1 client on Bun's plain sockets.
 *
 * Bun's `fetch` would not do for a proxy: it sends a GET again on every stale
 * connection that it holds (one was seen 51 times), takes slashes from a path that begins with two,
 * makes a GET of a method it does not know, adds `Accept` and `User-Agent`, and goes where HTTP_PROXY says.
 */
export function createTransport(options: PoolOptions = {}): Transport {
  checkPoolOptions(options);
  const { Bun } = globalThis as { Bun?: { version: string } };
  assertVersion("Bun", Bun?.version);
  return new HttpTransport("bun", options, {
    createConnector: (filled) => new NetConnector(filled),
    codec: bufferCodec,
  });
}

/** What is used of Bun's server, so that no types package is needed. */
interface BunServer {
  requestIP(request: Request): { address: string } | null;
  timeout(request: Request, seconds: number): void;
}

/** Bun passes its server beside the request; srvx and h3 show it on the request. */
function serverOf(request: Request, context: Context): BunServer | undefined {
  const passed = context as Partial<BunServer> | undefined;
  if (typeof passed?.requestIP === "function") return passed as BunServer;
  return (request as { runtime?: { bun?: { server?: BunServer } } }).runtime?.bun?.server;
}

/** A proxy on Bun: as a default export it starts a server. */
export interface BunProxy extends Proxy {
  /** Tells such a server to let all bodies in, not only those up to 128 MB; `bodyLimit` is the proxy's own. */
  readonly maxRequestBodySize: number;
  /**
   * Tells such a server what to do with the exception of a hook: `console.error` gets it, the client 500 without
   * a word of it. Bun's own answer shows message and source to the client unless `NODE_ENV` is `production`.
   */
  readonly error: (error: unknown) => Response;
}

/** Seconds that Bun gives an idle connection, unless told otherwise. */
const IDLE_TIMEOUT = 10;

/** The peer's address; undefined for a request that Bun did not make, such as the one that h3 mounts an app with. */
function addressOf(request: Request, server: BunServer | undefined): string | undefined {
  try {
    return server?.requestIP(request)?.address.replace(/^::ffff:(?=[\d.]+$)/, "");
  } catch {
    return undefined;
  }
}

class BunIncoming extends WebIncoming {
  readonly #server: BunServer | undefined;

  constructor(request: Request, server: BunServer | undefined) {
    super(request, addressOf(request, server));
    this.#server = server;
  }

  /** While the exchange lasts, its own deadlines count: the server's would cut it off in silence after 10 s. */
  override listen(listener: Listener): void {
    super.listen(listener);
    this.#setTimeout(0);
  }

  override unlisten(listener: Listener): void {
    super.unlisten(listener);
    this.#setTimeout(IDLE_TIMEOUT);
  }

  #setTimeout(seconds: number): void {
    try {
      this.#server?.timeout(this.request(), seconds);
    } catch {
      // Bun throws for a request that it did not make.
    }
  }
}

function respond({ status, statusText, headers, body }: UpstreamResponse): Response {
  return new Response(toBodyInit(body, headers), {
    status,
    statusText,
    headers: toHeaders(headers),
  });
}

/** Bytes that go out in one write with their head: less than half of what Bun's server collects. */
const SMALL = 8192;

function toBodyInit(body: UpstreamResponse["body"], headers: HeaderList): BodyInit | null {
  if (body === null) return null;
  const bytes = body.whole();
  if (bytes === undefined) return body.stream({ quiet: true });
  const typed = getHeader(headers, "content-type") !== undefined;
  if (typed && bytes.byteLength < SMALL) return bytes as BodyInit;
  // Bytes that can be taken again belong to someone else, and the stream hands its chunks out.
  return toSizedStream(body.replay === undefined ? bytes : copyBytes(bytes));
}

/**
 * Bytes as a stream that is here as a whole, which Bun sends with its length and its head in one
 * write. To bytes as such it adds a type where there is none; and where they are more than 16 KB it
 * writes each part of the head by itself, 27 writes for six fields.
 */
function toSizedStream(bytes: Uint8Array): ReadableStream<Uint8Array> {
  return new ReadableStream(
    {
      start(controller) {
        if (bytes.byteLength > 0) controller.enqueue(bytes);
        controller.close();
      },
    },
    { highWaterMark: bytes.byteLength + 1 },
  );
}

function reportError(error: unknown): Response {
  // oxlint-disable-next-line no-console
  console.error(error);
  return new Response(null, { status: 500 });
}

const runtime: Runtime = {
  read: (request, context) => new BunIncoming(request, serverOf(request, context)),
  createTransport,
  respond,
};

/**
 * Forwards a request to a target and resolves to the response to return.
 *
 * It does not know the server: that closes a connection after 10 s of silence unless told
 * otherwise, and the upstream is not told the client's address. `createProxy(…).fetch` does both.
 * @example
 * ```ts
 * export default {
 *   fetch(request, server) {
 *     server.timeout(request, 0);
 *     return proxyFetch(request, "http://127.0.0.1:4000");
 *   },
 * };
 * ```
 */
export const proxyFetch: ProxyFetch = bindProxyFetch(runtime);

/**
 * A proxy with its options compiled once and connections of its own.
 * @throws TypeError that names a bad option and the fix
 * @example export default createProxy({ target: "http://127.0.0.1:4000" });
 */
export function createProxy(options: CreateProxyOptions): BunProxy {
  const proxy = bindProxy(createRoute(options, runtime), runtime);
  return { ...proxy, maxRequestBodySize: Number.MAX_SAFE_INTEGER, error: reportError };
}
