import { toStream } from "../src/body.ts";
import { getHeader, toHeaders } from "../src/headers.ts";
import { type Context, type Incoming, WebIncoming } from "../src/incoming.ts";
import type { PoolOptions } from "../src/options.ts";
import {
  bindProxy,
  bindProxyFetch,
  createRoute,
  type CreateProxyOptions,
  type Proxy,
  type ProxyFetch,
  type Runtime,
} from "../src/proxy.ts";
import type { Reply, Transport } from "../src/transport.ts";
import { Exchange } from "./bun/exchange.ts";
import { BunTransport } from "./bun/transport.ts";

export * from "../src/index.ts";

/** What is used of Bun's server, so that no types package is needed. */
interface BunServer {
  requestIP(request: Request): { address: string } | null;
  timeout(request: Request, seconds: number): void;
}

/** Connections to upstreams, through Bun's `node:http` client. */
export function createTransport(options: PoolOptions = {}): Transport {
  return new BunTransport(options);
}

/** Bun passes its server beside the request; srvx and h3 show it on the request. */
function serverOf(request: Request, context: Context): BunServer | undefined {
  const shown = (request as { runtime?: { bun?: { server?: BunServer } } }).runtime?.bun?.server;
  const passed = context as Partial<BunServer> | undefined;
  return typeof passed?.requestIP === "function" ? (passed as BunServer) : shown;
}

/** Seconds that Bun gives an idle connection, unless told otherwise. */
const IDLE_TIMEOUT = 10;

class BunIncoming extends WebIncoming {
  readonly #server: BunServer | undefined;

  constructor(request: Request, server: BunServer | undefined) {
    super(request, server?.requestIP(request)?.address.replace(/^::ffff:(?=[\d.]+$)/, ""));
    this.#server = server;
  }

  /** While the exchange lasts, its deadlines count: the server's would cut it off in silence after 10 s. */
  override onAbort(listener: () => void): () => void {
    const request = this.request();
    const stop = super.onAbort(listener);
    this.#server?.timeout(request, 0);
    return () => {
      stop();
      this.#server?.timeout(request, IDLE_TIMEOUT);
    };
  }
}

function respond({ status, statusText, headers, body }: Reply, incoming: Incoming): Response {
  const whole = body instanceof Exchange ? body.whole() : undefined;
  return new Response(toBodyInit(whole ?? body, headers), {
    status,
    statusText,
    headers: toHeaders(headers),
  });
}

function toBodyInit(body: Reply["body"], headers: string[]): BodyInit | null {
  if (body === null) return null;
  // To bytes without a type Bun would add one, to a stream it does not.
  if (body instanceof Uint8Array && getHeader(headers, "content-type") !== undefined)
    return body as BodyInit;
  return toStream(body);
}

const runtime: Runtime = {
  read: (request, context) => new BunIncoming(request, serverOf(request, context)),
  createTransport,
  respond,
};

/**
 * Forwards a request to a target and resolves to the response to return.
 * @example Bun.serve({ idleTimeout: 0, fetch: (request) => proxyFetch(request, "https://api.example") });
 */
export const proxyFetch: ProxyFetch = bindProxyFetch(runtime);

/**
 * A proxy with its options compiled once and connections of its own.
 * @throws TypeError that names a bad option and the fix
 * @example export default createProxy({ target: "https://api.example" });
 */
export function createProxy(options: CreateProxyOptions): Proxy {
  return bindProxy(createRoute(options, runtime), runtime);
}
