import type { Listener } from "../src/exchange/scope.ts";
import type { Memory } from "../src/http1/attempt.ts";
import { HttpTransport } from "../src/http1/client.ts";
import { type Context, type Incoming, WebIncoming } from "../src/request/incoming.ts";
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
import type { UpstreamResponse, Transport } from "../src/transport.ts";
import { bufferCodec } from "./sockets/buffercodec.ts";
import { NetConnector } from "./sockets/connect.ts";
import { assertVersion } from "./sockets/versions.ts";

export * from "../src/index.ts";

/** A request body is read into the buffers of chunks that were sent. */
const RETURNED: Memory = { ofRequests: () => "returned" };

/**
 * Connections to upstreams, through an HTTP/1.1 client on Deno's plain sockets.
 *
 * Deno's `fetch` would not do for a proxy: it undoes codings unless nothing but
 * `identity` is accepted, sends a POST again when a connection breaks (also one made for it),
 * adds `Accept` and `User-Agent`, changes paths, and goes where HTTP_PROXY says.
 */
export function createTransport(options: PoolOptions = {}): Transport {
  checkPoolOptions(options);
  const { Deno } = globalThis as { Deno?: { version: { deno: string } } };
  assertVersion("Deno", Deno?.version.deno);
  return new HttpTransport("deno", options, {
    createConnector: (filled) => new NetConnector(filled),
    codec: bufferCodec,
    chunks: RETURNED,
  });
}

/**
 * Requests whose client is not listened to yet. Asking for a request's signal
 * costs as much as the rest of it, and most are answered long before anybody leaves.
 *
 * An array whose members know their places: a set would keep the young collector from its work.
 */
let unheard: DenoIncoming[] = [];
const UNHEARD_FOR = 200;
let hearing: ReturnType<typeof setTimeout> | undefined;

function hearAll(): void {
  const all = unheard;
  hearing = undefined;
  unheard = [];
  for (const each of all) each.hear();
}

class DenoIncoming extends WebIncoming {
  /** Where it is among those; below 0 for nowhere. */
  #at = -1;
  #listener: Listener | undefined;

  /**
   * Deno makes the URL's authority of `Host`, unless the request target is in absolute-form. srvx
   * replaces the URL where it believes `X-Forwarded-Host`: that is no other target.
   */
  get named(): string | undefined {
    return Object.hasOwn(this.request(), "url") ? undefined : this.authority;
  }

  override listen(listener: Listener): void {
    this.#listener = listener;
    this.#at = unheard.push(this) - 1;
    hearing ??= setTimeout(hearAll, UNHEARD_FOR);
  }

  hear(): void {
    this.#at = -1;
    if (this.#listener !== undefined) super.listen(this.#listener);
  }

  override unlisten(listener: Listener): void {
    if (this.#at < 0) return super.unlisten(listener);
    const last = unheard.pop() as DenoIncoming;
    if (last !== this) {
      unheard[this.#at] = last;
      last.#at = this.#at;
    }
    this.#at = -1;
  }
}

/** What `Deno.serve` passes beside the request; srvx and h3 show it on the request. */
interface ServeInfo {
  remoteAddr?: { hostname?: string };
}

function addressOf(request: Request, context: Context): string | undefined {
  const passed = context as ServeInfo | undefined;
  const shown = (request as { runtime?: { deno?: { info?: ServeInfo } } }).runtime?.deno?.info;
  const { hostname } = passed?.remoteAddr ?? shown?.remoteAddr ?? {};
  return hostname?.replace(/^::ffff:(?=[\d.]+$)/, "");
}

function read(request: Request, context: Context): Incoming {
  return new DenoIncoming(request, addressOf(request, context));
}

/** Deno copies bytes that are a response's body: more than these go out as a stream of the pieces in which they came. */
const SMALL = 16_384;

function respond({ status, statusText, headers, body }: UpstreamResponse): Response {
  const bytes = body?.whole(SMALL);
  const fields: [string, string][] = [];
  for (let i = 0; i < headers.length; i += 2) {
    fields.push([headers[i] as string, headers[i + 1] as string]);
  }
  return new Response((bytes as BodyInit | undefined) ?? body?.stream() ?? null, {
    status,
    statusText,
    headers: fields,
  });
}

const runtime: Runtime = { read, createTransport, respond };

/**
 * Forwards a request to a target and resolves to the response to return.
 * @example
 * ```ts
 * const handler = (request: Request) => proxyFetch(request, "http://127.0.0.1:4000");
 *
 * const response = await handler(new Request("http://localhost/"));
 * await response.body?.cancel();
 * ```
 */
export const proxyFetch: ProxyFetch = bindProxyFetch(runtime);

/**
 * A proxy with its options compiled once and connections of its own.
 * @throws TypeError that names a bad option and the fix
 * @example
 * ```ts
 * const proxy = createProxy({ target: "http://127.0.0.1:4000", timeout: 5_000 });
 *
 * const response = await proxy.fetch(new Request("http://localhost/"));
 * await response.body?.cancel();
 * await proxy.close();
 * ```
 */
export function createProxy(options: CreateProxyOptions): Proxy {
  return bindProxy(createRoute(options, runtime), runtime);
}
