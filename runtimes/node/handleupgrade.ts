import type { IncomingMessage, ServerResponse } from "node:http";
import type { Duplex } from "node:stream";
import { badRequest, type ProxyError } from "../../src/error.ts";
import { chooseProtocol } from "../../src/fields/protocols.ts";
import type { Context } from "../../src/options/forwardingoptions.ts";
import { forward } from "../../src/pipeline/pipeline.ts";
import type { Plan } from "../../src/plan.ts";
import type { Route } from "../../src/proxy.ts";
import type { ClientRules } from "../../src/request/clientkey.ts";
import { mayAsk } from "../../src/request/upgrade.ts";
import { toErrorResponse } from "../../src/response/errorresponse.ts";
import { discardBody } from "../../src/transport/message.ts";
import type { Listener } from "../../src/transport/scope.ts";
import { type Tunnel, WatchedTunnel } from "../../src/transport/tunnel.ts";
import { isHttp2 } from "./incomingbody.ts";
import { MessageIncoming } from "./nodeincoming.ts";
import { type Head, partsOf, respond, sendParts } from "./noderesponse.ts";
import { turnAfterAll } from "./turns.ts";
import { UpgradeSocket } from "./upgradesocket.ts";

type HttpModule = typeof import("node:http");

/** Node's built-in modules are looked up at run time, because a bundle for another runtime cannot import them. */
const { process } = globalThis as unknown as {
  process: { getBuiltinModule(name: "node:http"): HttpModule };
};
let http: HttpModule | undefined;

function loadHttp(): HttpModule {
  return (http ??= process.getBuiltinModule("node:http"));
}

/** Makes Node's response to a request that the server has handed over without a response. */
export function createResponse(req: Partial<IncomingMessage>): ServerResponse {
  return new (loadHttp().ServerResponse)(req as IncomingMessage);
}

/** Returns the 100 that RFC 9110 §7.8 requires before a 101. Both are sent together, because the request has no body to wait for. */
export function interimOf({ headers }: IncomingMessage): string {
  return headers.expect?.toLowerCase() === "100-continue" ? "HTTP/1.1 100 Continue\r\n\r\n" : "";
}

/** A listener for `upgrade` of Node's servers. */
export type UpgradeListener = (req: IncomingMessage, socket: Duplex, head: Uint8Array) => void;

/** A request that Node's server has handed over for an upgrade. */
class UpgradeIncoming extends MessageIncoming {
  readonly upgrade: string | undefined;
  override readonly fault: ProxyError | undefined;
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
    // The server has stopped parsing, so the body of a request that asks for another protocol cannot be read.
    this.fault = this.body === null ? undefined : badRequest("body with Upgrade");
  }

  watchTunnel(...watched: ConstructorParameters<typeof WatchedTunnel>): Tunnel {
    return new WatchedTunnel(...watched);
  }

  override turn(): Promise<void> | undefined {
    return this.#turn;
  }

  override listen(listener: Listener): void {
    this.#client.listen(listener);
  }

  override unlisten(): void {
    this.#client.unlisten();
  }
}

/** Returns the supported protocol to which a request asks to switch; undefined for an ordinary request. */
export function protocolOf(
  { method, httpVersion, headers }: IncomingMessage,
  { upgrades }: Plan,
): string | undefined {
  if (httpVersion !== "1.1" || headers.upgrade === undefined) return undefined;
  const protocol = chooseProtocol(headers.upgrade, upgrades);
  const { "content-length": length, "transfer-encoding": coding } = headers;
  const isAsked = protocol !== undefined && mayAsk(protocol, method, length, coding);
  return isAsked ? protocol : undefined;
}

/** Returns the listener for `upgrade` that forwards requests by a route. */
export function createUpgradeListener({ target, plan }: Route): UpgradeListener {
  return (req, socket, head) => {
    const client = new UpgradeSocket(socket, head);
    const res = createResponse(req);
    const protocol = protocolOf(req, plan);
    const turn = turnAfterAll(req.socket);
    answer().catch(async (thrown: unknown) => {
      // Nothing else reports the exception, because the server does not wait for listeners of its event.
      // oxlint-disable-next-line no-console
      console.error(thrown);
      await turn;
      if (res.headersSent || !client.isWaiting) return client.destroy();
      client.beginResponse(res);
      res.writeHead(500).end();
    });

    async function answer(): Promise<void> {
      const context = { req, socket, head };
      const incoming = new UpgradeIncoming(req, res, client, protocol, turn, plan, context);
      const response = await forward(incoming, target, plan, context, respond);
      // Responses are sent in the order of the requests (RFC 9112 §9.3.2). `forward` waits for this turn before it sends the
      // request, but the response to a request that is refused earlier has not waited, so wait here.
      await turn;
      const parts = partsOf(response);
      const { tunnel } = parts;
      if (!client.isWaiting) {
        discardBody(parts);
        return client.destroy();
      }
      if (tunnel === undefined) {
        client.beginResponse(res);
        return sendParts(parts, res);
      }
      try {
        const lines = interimOf(req) + writeSwitch(parts, protocol as string);
        client.switchTo(tunnel, lines, protocol === "websocket", plan.options);
      } catch (error) {
        tunnel.destroy();
        throw error;
      }
    }
  };
}

/**
 * Answers an upgrade or a CONNECT with an error. The server has handed the request over with its connection.
 * @param socket the connection; over HTTP/2, the response to a CONNECT
 */
export function refuseUpgrade(
  req: IncomingMessage,
  socket: Duplex,
  head: Uint8Array,
  error: ProxyError,
): void {
  if (isHttp2(req)) {
    const response = socket as unknown as ServerResponse;
    return void sendParts(toErrorResponse(error, req.method), response);
  }
  const client = new UpgradeSocket(socket, head);
  const res = createResponse(req);
  const refuse = (): void => {
    if (!client.isWaiting) return client.destroy();
    client.beginResponse(res);
    void sendParts(toErrorResponse(error, req.method ?? "GET"), res);
  };
  const turn = turnAfterAll(req.socket);
  if (turn === undefined) refuse();
  else void turn.then(refuse);
}

/**
 * Returns the head of a 101.
 * @throws TypeError for a field that a hook or a transport has made invalid
 */
export function writeSwitch(
  { statusText, headers }: Pick<Head, "statusText" | "headers">,
  protocol: string,
): string {
  const { validateHeaderName, validateHeaderValue } = loadHttp();
  let lines = `HTTP/1.1 101 ${statusText || "Switching Protocols"}\r\n`;
  for (let i = 0; i < headers.length; i += 2) {
    const name = headers[i] as string;
    const value = headers[i + 1] as string;
    validateHeaderName(name);
    validateHeaderValue(name, value);
    lines += `${name}: ${value}\r\n`;
  }
  return `${lines}Connection: Upgrade\r\nUpgrade: ${protocol}\r\n\r\n`;
}
