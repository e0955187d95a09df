import type { Listener } from "../../src/exchange/scope.ts";
import { type Context, type Incoming, WebIncoming } from "../../src/request/incoming.ts";
import { unmapAddress } from "../../src/request/trust.ts";
import type { HeaderList } from "../../src/transport.ts";
import { type Tunnel, WatchedTunnel } from "../../src/tunnel.ts";
import { asksForWebSocket, takeOverHandshake } from "../../src/websocket/handshake.ts";
import { type BunUpgrader, relayWebSocket } from "./websocket.ts";

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

/** Returns the client's address. Bun throws for a `Request` that its server did not make, such as one of h3's `mount()`. */
function readPeerAddress(request: Request, server: BunServer | undefined): string | undefined {
  try {
    const address = server?.requestIP(request)?.address;
    return address && unmapAddress(address);
  } catch {
    return undefined;
  }
}

/** The seconds after which Bun closes an idle connection by default. */
const IDLE_TIMEOUT = 10;

/** A request of Bun's server. */
class BunIncoming extends WebIncoming {
  readonly #server: BunServer | undefined;

  constructor(request: Request, server: BunServer | undefined) {
    super(request, readPeerAddress(request, server));
    this.#server = server;
  }

  /** Turns the server's idle timeout off for the exchange: the timeout would close a slow connection without a response. */
  override listen(listener: Listener): void {
    super.listen(listener);
    this.#setIdleTimeout(0);
  }

  override unlisten(listener: Listener): void {
    super.unlisten(listener);
    this.#setIdleTimeout(IDLE_TIMEOUT);
  }

  get upgrade(): string | undefined {
    return this.#server !== undefined && asksForWebSocket(this.headers) ? "websocket" : undefined;
  }

  prepareUpgrade(headers: HeaderList): void {
    takeOverHandshake(headers);
  }

  watchTunnel(...watched: ConstructorParameters<typeof WatchedTunnel>): Tunnel {
    return new WatchedTunnel(...watched);
  }

  completeUpgrade(response: Response, tunnel: Tunnel, timeout: number): Response {
    return relayWebSocket(this.request(), this.#server as BunServer, response, tunnel, timeout);
  }

  #setIdleTimeout(seconds: number): void {
    try {
      this.#server?.timeout(this.request(), seconds);
    } catch {
      // Bun throws for a `Request` that its server did not make.
    }
  }
}

/** Reads a request of `Bun.serve`. */
export function readRequest(request: Request, context: Context): Incoming {
  return new BunIncoming(request, findServer(request, context));
}
