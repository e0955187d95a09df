import { clientGone, ProxyError } from "../../src/error.ts";
import type { TunnelOptions } from "../../src/options/limitoptions.ts";
import type { Tunnel } from "../../src/transport/tunnel.ts";
import {
  type ClientSocket,
  readRelayLimits,
  Relay,
  type RelayLimits,
} from "../../src/websocket/relay.ts";

/**
 * The method of the global `Deno` that upgrades a request to a WebSocket. It is declared here, so that no types package is
 * needed.
 */
interface DenoUpgrader {
  upgradeWebSocket(
    request: Request,
    options: { idleTimeout: number },
  ): { socket: WebSocket; response: Response };
}

/**
 * The maximum number of milliseconds between the answer to the handshake and the event `open` of the WebSocket. Deno does not
 * report a client that disconnects in between.
 */
const OPEN_TIMEOUT = 10_000;

/**
 * A client's WebSocket. Deno cannot stop reading from it. If a client sends faster than the upstream reads, and too many bytes
 * wait, the proxy closes the WebSocket.
 */
class DenoClient implements ClientSocket {
  readonly #socket: WebSocket;

  constructor(socket: WebSocket) {
    this.#socket = socket;
  }

  send(data: string | Uint8Array<ArrayBuffer>): void {
    if (this.#socket.readyState === WebSocket.OPEN) this.#socket.send(data);
  }

  bufferedAmount(): number {
    return this.#socket.bufferedAmount;
  }

  close(code: number | undefined, reason: string): void {
    if (code === undefined) this.#socket.close();
    else this.#socket.close(code, reason);
  }

  terminate(): void {
    this.#socket.close(1011);
  }
}

/** Connects a client's WebSocket with the upstream once the WebSocket is open. */
function relay(socket: WebSocket, tunnel: Tunnel, limits: RelayLimits): void {
  socket.binaryType = "arraybuffer";
  const opening = setTimeout(() => tunnel.destroy(), OPEN_TIMEOUT);
  socket.addEventListener("open", () => {
    clearTimeout(opening);
    const client = new DenoClient(socket);
    const running = new Relay(client, tunnel, () => {}, limits);
    socket.addEventListener("message", ({ data }: MessageEvent<string | ArrayBuffer>) =>
      running.onClientMessage(typeof data === "string" ? data : new Uint8Array(data)),
    );
    // If the connection breaks off, Deno reports the code 0, for which `onClientClose` resets the upstream's connection.
    socket.addEventListener("close", ({ code, reason }) => running.onClientClose(code, reason));
    running.start();
  });
  // The event `close` follows each `error`. Without a listener for `error`, Deno would end the process.
  socket.addEventListener("error", () => {});
}

/**
 * Answers a handshake, and connects the client with the upstream.
 * @throws ProxyError if the client has disconnected, or Deno's server did not make the request
 */
export function relayWebSocket(
  request: Request,
  response: Response,
  tunnel: Tunnel,
  options: TunnelOptions,
): Response {
  if (request.signal.aborted) throw clientGone();
  const { Deno } = globalThis as unknown as { Deno: DenoUpgrader };
  let upgraded: ReturnType<DenoUpgrader["upgradeWebSocket"]>;
  try {
    upgraded = Deno.upgradeWebSocket(request, { idleTimeout: 0 });
  } catch (cause) {
    throw new ProxyError("http_request_error", {
      status: 501,
      message: "Deno cannot upgrade this request: pass the one that its server has made",
      cause,
    });
  }
  // Deno recognizes only its own response, so add the fields to that response. Do not set the subprotocol by the option
  // `protocol`: Deno then refuses a client that does not separate its subprotocols by ", ".
  for (const [name, value] of response.headers) upgraded.response.headers.append(name, value);
  relay(upgraded.socket, tunnel, readRelayLimits(options));
  return upgraded.response;
}
