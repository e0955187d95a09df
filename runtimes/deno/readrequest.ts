import type { HeaderList } from "../../src/fields/headers.ts";
import type { Context } from "../../src/options/forwardingoptions.ts";
import type { TunnelOptions } from "../../src/options/limitoptions.ts";
import { clientAddressOf, clientKeyOf, type ClientRules } from "../../src/request/clientkey.ts";
import { type Incoming, WebIncoming } from "../../src/request/incoming.ts";
import { unmapAddress } from "../../src/target/address.ts";
import type { Listener } from "../../src/transport/scope.ts";
import { type Tunnel, WatchedTunnel } from "../../src/transport/tunnel.ts";
import { asksForWebSocket, takeOverHandshake } from "../../src/websocket/handshake.ts";
import { relayWebSocket } from "./websocket.ts";

/**
 * The maximum number of milliseconds until the proxy begins to listen for a client's disconnect.
 *
 * Deno makes the signal of a request when `request.signal` is first read. Making it costs as much as everything else that Deno
 * does for the request. Most exchanges end within this time, so that the proxy never reads their signal.
 */
const LISTEN_AFTER = 200;

/**
 * The requests whose signal has not been read yet. They share one timer, which the first of them starts.
 *
 * They are in an array, and each knows its own index, because a set could keep much memory in use: V8 gives a set a new table
 * whenever its entries have changed often enough, and the old table refers to the new one. Once a table has moved to V8's old
 * generation, it keeps all later tables in memory.
 */
let deferred: DenoIncoming[] = [];
let timer: ReturnType<typeof setTimeout> | undefined;

function listenToDeferred(): void {
  const all = deferred;
  timer = undefined;
  deferred = [];
  for (const each of all) each.listenNow();
}

class DenoIncoming extends WebIncoming {
  /** The index in `deferred`; -1 if the request is not in it. */
  #index = -1;
  /** The first listener for the client's disconnect. */
  #listener: Listener | undefined;
  readonly #rules: ClientRules;
  readonly #context: Context;

  constructor(request: Request, rules: ClientRules, context: Context) {
    super(request, readPeerAddress(request, context));
    this.#rules = rules;
    this.#context = context;
  }

  get clientKey(): string | undefined {
    return clientKeyOf(this, this.#rules, this.#context);
  }

  get clientAddress(): string | undefined {
    return clientAddressOf(this, this.#rules, this.#context);
  }

  /**
   * The authority of a request target in absolute-form. For any other request target, it is the value of `Host`, from which
   * Deno makes the URL. It is undefined if srvx is configured to trust `X-Forwarded-Host` and has replaced the URL: the
   * authority of the new URL does not come from the request target.
   */
  get named(): string | undefined {
    return Object.hasOwn(this.request(), "url") ? undefined : this.authority;
  }

  get upgrade(): string | undefined {
    return asksForWebSocket(this.headers) ? "websocket" : undefined;
  }

  /**
   * Also begins to listen for a disconnect. Deno reports a disconnect only to a signal that was read before the disconnect. If
   * a handshake is answered after the disconnect, the client's socket stays open forever.
   */
  prepareUpgrade(headers: HeaderList): void {
    takeOverHandshake(headers);
    if (this.#index < 0) return;
    this.#removeDeferred();
    this.listenNow();
  }

  watchTunnel(...watched: ConstructorParameters<typeof WatchedTunnel>): Tunnel {
    return new WatchedTunnel(...watched);
  }

  completeUpgrade(response: Response, tunnel: Tunnel, options: TunnelOptions): Response {
    return relayWebSocket(this.request(), response, tunnel, options);
  }

  /**
   * Defers only the first listener. A later listener belongs to a mirrored request, or to a repeated attempt, which must not be
   * sent once the client has disconnected.
   */
  override listen(listener: Listener): void {
    if (this.#listener !== undefined) return super.listen(listener);
    this.#listener = listener;
    this.#index = deferred.push(this) - 1;
    timer ??= setTimeout(listenToDeferred, LISTEN_AFTER);
  }

  /** Reads the request's signal and listens to it. */
  listenNow(): void {
    this.#index = -1;
    if (this.#listener !== undefined) super.listen(this.#listener);
  }

  override unlisten(listener: Listener): void {
    if (this.#index >= 0 && listener === this.#listener) this.#removeDeferred();
    else super.unlisten(listener);
  }

  #removeDeferred(): void {
    const last = deferred.pop() as DenoIncoming;
    if (last !== this) {
      deferred[this.#index] = last;
      last.#index = this.#index;
    }
    this.#index = -1;
  }
}

/** The second argument of a handler of `Deno.serve`. */
interface ServeInfo {
  remoteAddr?: { hostname?: string };
}

/** Returns the client's address. Deno passes it to the handler, and srvx and h3 keep it on the request. */
function readPeerAddress(request: Request, context: Context): string | undefined {
  const passed = context as ServeInfo | undefined;
  const kept = (request as { runtime?: { deno?: { info?: ServeInfo } } }).runtime?.deno?.info;
  const { hostname } = passed?.remoteAddr ?? kept?.remoteAddr ?? {};
  return hostname && unmapAddress(hostname);
}

/** Reads a request of `Deno.serve`. */
export function readRequest(request: Request, context: Context, rules: ClientRules): Incoming {
  return new DenoIncoming(request, rules, context);
}
