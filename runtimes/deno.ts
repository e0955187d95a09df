import { toStream } from "../src/body.ts";
import { toHeaders } from "../src/headers.ts";
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
import { Exchange } from "./http/exchange.ts";
import { HttpTransport } from "./http/transport.ts";

export * from "../src/index.ts";

/** Connections to upstreams, through Deno's `node:http` client. */
export function createTransport(options: PoolOptions = {}): Transport {
  return new HttpTransport("deno", options);
}

/** What `Deno.serve` passes beside the request. */
interface ServeInfo {
  remoteAddr?: { hostname?: string };
}

/**
 * Requests whose client is not listened to yet. Asking for a request's signal
 * costs as much as the rest of it, and most are answered long before anybody leaves.
 */
const unheard = new Set<() => void>();
const UNHEARD_FOR = 200;
let hearing: ReturnType<typeof setTimeout> | undefined;

function hearAll(): void {
  hearing = undefined;
  for (const listen of unheard) listen();
  unheard.clear();
}

class DenoIncoming extends WebIncoming {
  override onAbort(listener: () => void): () => void {
    let stop: (() => void) | undefined;
    const listen = (): void => {
      stop = super.onAbort(listener);
    };
    unheard.add(listen);
    hearing ??= setTimeout(hearAll, UNHEARD_FOR);
    return () => {
      unheard.delete(listen);
      stop?.();
    };
  }
}

function read(request: Request, context: Context): Incoming {
  const address = (context as ServeInfo | undefined)?.remoteAddr?.hostname;
  return new DenoIncoming(request, address?.replace(/^::ffff:(?=[\d.]+$)/, ""));
}

function respond({ status, statusText, headers, body }: Reply): Response {
  const whole = body instanceof Exchange ? body.whole() : undefined;
  return new Response((whole as BodyInit | undefined) ?? (body && toStream(body)), {
    status,
    statusText,
    headers: toHeaders(headers),
  });
}

const runtime: Runtime = { read, createTransport, respond };

/**
 * Forwards a request to a target and resolves to the response to return.
 * @example Deno.serve((request) => proxyFetch(request, "https://api.example"));
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
