import type { IncomingMessage, ServerResponse } from "node:http";
import { badRequest, type ProxyError } from "../../src/error.ts";
import type { Context } from "../../src/options/forwardingoptions.ts";
import type { TunnelOptions } from "../../src/options/limitoptions.ts";
import type { ClientRules } from "../../src/request/clientkey.ts";
import type { Listener } from "../../src/transport/scope.ts";
import { type Tunnel, WatchedTunnel } from "../../src/transport/tunnel.ts";
import { MessageIncoming } from "./nodeincoming.ts";
import type { UpgradeSocket } from "./upgradesocket.ts";

/** A request from the event `upgrade` or `connect` of a Node server. */
export class UpgradeIncoming extends MessageIncoming {
  readonly upgrade: string | undefined;
  override readonly fault: ProxyError | undefined = undefined;
  /** The options that limit the tunnel. They are another proxy's if the request has moved to it (`moveWaiting`). */
  tunnelOptions: TunnelOptions = {};
  readonly #client: UpgradeSocket;
  readonly #turn: Promise<void> | undefined;

  constructor(
    req: IncomingMessage,
    res: ServerResponse,
    client: UpgradeSocket,
    upgrade: string | undefined,
    turn: Promise<void> | undefined,
    ...identity: [rules: ClientRules, context: Context]
  ) {
    super(req, res, ...identity);
    this.#client = client;
    this.#turn = turn;
    this.upgrade = upgrade;
    // Node stops parsing the connection after the head of an upgrade request, so a body cannot be read. Nor does
    // Node check `Host` in an upgrade request (RFC 9112 §3.2).
    if (this.body !== null) this.fault = badRequest("body with Upgrade");
    else if (req.httpVersion === "1.1" && req.headers.host === undefined) {
      this.fault = badRequest("missing Host");
    }
  }

  watchTunnel(...watched: ConstructorParameters<typeof WatchedTunnel>): Tunnel {
    return new WatchedTunnel(...watched);
  }

  completeUpgrade(response: Response, _tunnel: Tunnel, options: TunnelOptions): Response {
    this.tunnelOptions = options;
    return response;
  }

  override turn(): Promise<void> | undefined {
    return this.#turn;
  }

  override listen(listener: Listener): void {
    this.#client.listen(listener);
  }

  override unlisten(listener: Listener): void {
    this.#client.unlisten(listener);
  }
}
