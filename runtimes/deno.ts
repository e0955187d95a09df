/**
 * The entry for Deno: `fetchway/deno`, and `fetchway` on Deno.
 * @module
 */
import { makeSharedMembers, makeSharedParts } from "./sockets/sharedparts.ts";
import { copyBytes } from "../src/body/memory.ts";
import type { ChunkMemory } from "../src/http1/writebody.ts";
import type { Codec } from "../src/http1/codec.ts";
import type { PoolOptions } from "../src/options/pooloptions.ts";
import {
  bindCreateProxy,
  bindProxyFetch,
  type CreateProxy,
  type ExplainingProxy,
  type Proxy,
  type ProxyFetch,
  type Runtime,
  type WaitingProxy,
} from "../src/proxy.ts";
import type { Transport } from "../src/transport/port.ts";
import { setUnref } from "../src/transport/timers.ts";
import { takeReadBuffer } from "./deno/internals/readbuffers.ts";
import { readRequest } from "./deno/readrequest.ts";
import { respond } from "./deno/respond.ts";
import { refuseNodeMembers } from "./nodemembers.ts";
import { bufferCodec } from "./sockets/buffercodec.ts";
import { createSocketTransport } from "./sockets/sockettransport.ts";

export * from "../src/index.ts";
export { applyAbsoluteForm } from "./absoluteform.ts";
export type { RequestTrace } from "./sockets/requestchannel.ts";

/**
 * `bufferCodec` with a plain `copy`: on Deno, the `copy` of `bufferCodec` would not be faster, because `Buffer.allocUnsafeSlow`
 * first sets all bytes to zero.
 */
const CODEC: Codec = { ...bufferCodec, copy: copyBytes };

/** The members of the global `Deno` that are used here. */
interface DenoGlobal {
  readonly version: { readonly deno: string };
  readonly permissions?: {
    querySync(permission: { name: "net" } | { name: "env"; variable: string }): {
      readonly state: string;
    };
  };
  readonly env: { get(name: string): string | undefined };
  unrefTimer(timer: number): void;
}

/** The memory of a request body's chunk is released once the socket has written the chunk, and is reused for a later chunk. */
const REUSED_BUFFERS: ChunkMemory = { mayRelease: () => true };

/**
 * Creates a transport that sends requests over Deno's sockets, with a pool of connections to each upstream. It speaks HTTP/1.1,
 * or HTTP/2 with the option `http2`.
 *
 * It does not use Deno's `fetch`, which cannot forward requests unchanged. Deno's `fetch` decodes bodies unless the
 * request accepts `identity` alone, sends a POST again when a connection breaks (even a new one), adds `Accept` and
 * `User-Agent`, changes paths, and obeys `HTTP_PROXY`.
 * @throws TypeError that names a bad option and the fix, or says that this version of Deno is too old
 * @example const transport = createTransport({ maxSockets: 50 });
 */
export function createTransport(options: PoolOptions = {}): Transport {
  const { Deno } = globalThis as { Deno?: DenoGlobal };
  // Deno's timers are numbers, which have no method `unref`.
  setUnref((timer) => Deno?.unrefTimer(timer as unknown as number));
  // Deno's permission for a host name does not include its addresses: with `--allow-net=api.example`, Deno refuses connections
  // to the addresses that a lookup of `api.example` finds. Where only some hosts are permitted, Deno itself must look names up.
  const { state = "granted" } = Deno?.permissions?.querySync({ name: "net" }) ?? {};
  return createSocketTransport("Deno", Deno?.version.deno, options, {
    sockets: { takeMemory: takeReadBuffer, leavesNames: state !== "granted" },
    codec: CODEC,
    chunkMemory: REUSED_BUFFERS,
  });
}

/** A proxy on Deno. */
export interface DenoProxy extends Proxy, ExplainingProxy, WaitingProxy {}

/** Returns `NODE_ENV`; undefined without the permission to read it, because Deno would ask the user or throw. */
function readMode(): string | undefined {
  const { Deno } = globalThis as { Deno?: DenoGlobal };
  const permission = Deno?.permissions?.querySync({ name: "env", variable: "NODE_ENV" });
  return permission?.state === "granted" ? Deno?.env.get("NODE_ENV") : undefined;
}

const runtime: Runtime = {
  ...makeSharedParts(readMode),
  read: readRequest,
  createTransport,
  respond,
};

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
export const proxyFetch: ProxyFetch = /* @__PURE__ */ bindProxyFetch(runtime);

/**
 * Creates a proxy that compiles its options once and has its own connections.
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
export const createProxy: CreateProxy<DenoProxy> = /* @__PURE__ */ bindCreateProxy(
  runtime,
  (route) => refuseNodeMembers(makeSharedMembers(route, runtime)),
);
