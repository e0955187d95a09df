import { NameSet, type HeaderList } from "../../src/fields/headers.ts";
import type { Context } from "../../src/options/forwardingoptions.ts";
import type { TunnelOptions } from "../../src/options/limitoptions.ts";
import { clientAddressOf, clientKeyOf, type ClientRules } from "../../src/request/clientkey.ts";
import { type Incoming, WebIncoming } from "../../src/request/incoming.ts";
import { unmapAddress } from "../../src/target/address.ts";
import type { Listener } from "../../src/transport/scope.ts";
import { type Tunnel, WatchedTunnel } from "../../src/transport/tunnel.ts";
import { asksForWebSocket, takeOverHandshake } from "../../src/websocket/handshake.ts";
import { areHandlersRead, type BunUpgrader, relayWebSocket } from "./websocket.ts";

/** The methods of Bun's server that the proxy calls. They are declared here, so that no types package is needed. */
interface BunServer extends BunUpgrader {
  requestIP(request: Request): { address: string } | null;
  timeout(request: Request, seconds: number): void;
}

/** Finds Bun's server: Bun passes it to `fetch` beside the request, and srvx and h3 keep it on the request. */
function findServer(request: Request, context: Context): BunServer | undefined {
  const passed = context as Partial<BunServer> | undefined;
  if (typeof passed?.requestIP === "function") return passed as BunServer;
  return (request as { runtime?: { bun?: { server?: BunServer } } }).runtime?.bun?.server;
}

/**
 * Returns the client's address. Bun throws for a `Request` that its server did not make, such as one that h3's `mount()` makes.
 */
function readPeerAddress(request: Request, server: BunServer | undefined): string | undefined {
  try {
    const address = server?.requestIP(request)?.address;
    return address && unmapAddress(address);
  } catch {
    return undefined;
  }
}

/**
 * The seconds after which Bun closes an idle connection by default. Bun does not expose the server's own `idleTimeout`, but
 * applies it again at the connection's next request.
 */
const IDLE_TIMEOUT = 10;

/**
 * The milliseconds after which the proxy begins to listen for a client's disconnect.
 *
 * Listening makes Bun create an abort signal, and makes the proxy change the idle timeout twice. Most exchanges end before this
 * time and need neither. No disconnect is missed: a signal that is first read after the client has disconnected is aborted
 * already.
 */
const LISTEN_AFTER = 20;

class BunIncoming extends WebIncoming {
  /**
   * The milliseconds until the proxy listens for a disconnect; undefined to listen from the start, as for a request with
   * `Upgrade`, with a body, or with fields that frame one. Bun calls the handler before it has parsed the body; if the body is
   * malformed, Bun itself answers 400 and aborts the signal. Only a listener that was added at the start then keeps the request
   * from being sent.
   */
  readonly listenAfter: number | undefined;
  readonly #server: BunServer | undefined;
  readonly #rules: ClientRules;
  readonly #context: Context;
  /** The number of exchanges that listen; an interceptor may begin several for one request (`scope.fork()`). */
  #listeners = 0;

  constructor(
    request: Request,
    server: BunServer | undefined,
    rules: ClientRules,
    context: Context,
  ) {
    super(request, readPeerAddress(request, server));
    this.#server = server;
    this.#rules = rules;
    this.#context = context;
    this.listenAfter = mayListenLate(this) ? LISTEN_AFTER : undefined;
  }

  get clientKey(): string | undefined {
    return clientKeyOf(this, this.#rules, this.#context);
  }

  get clientAddress(): string | undefined {
    return clientAddressOf(this, this.#rules, this.#context);
  }

  /** Also turns off the server's idle timeout, which would close the connection of a slow exchange without a response. */
  override listen(listener: Listener): void {
    if (this.#listeners++ === 0) this.#setIdleTimeout(0);
    super.listen(listener);
  }

  override unlisten(listener: Listener): void {
    super.unlisten(listener);
    if (--this.#listeners === 0) this.#setIdleTimeout(IDLE_TIMEOUT);
  }

  get upgrade(): string | undefined {
    const mayAnswer = this.#server !== undefined && areHandlersRead();
    return mayAnswer && asksForWebSocket(this.headers) ? "websocket" : undefined;
  }

  prepareUpgrade(headers: HeaderList): void {
    takeOverHandshake(headers);
  }

  watchTunnel(...watched: ConstructorParameters<typeof WatchedTunnel>): Tunnel {
    return new WatchedTunnel(...watched);
  }

  completeUpgrade(response: Response, tunnel: Tunnel, options: TunnelOptions): Response {
    return relayWebSocket(this.request(), this.#server as BunServer, response, tunnel, options);
  }

  #setIdleTimeout(seconds: number): void {
    try {
      this.#server?.timeout(this.request(), seconds);
    } catch {
      // Bun throws for a `Request` that its server did not make.
    }
  }
}

const FRAMING_OR_UPGRADE = new NameSet(["content-length", "transfer-encoding", "upgrade"]);

function mayListenLate({ body, headers }: Incoming): boolean {
  if (body !== null) return false;
  for (let i = 0; i < headers.length; i += 2) {
    if (FRAMING_OR_UPGRADE.has(headers[i] as string)) return false;
  }
  return true;
}

/** Reads a request of `Bun.serve`. */
export function readRequest(request: Request, context: Context, rules: ClientRules): Incoming {
  return new BunIncoming(request, findServer(request, context), rules, context);
}
