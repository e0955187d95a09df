import type { IncomingMessage, ServerResponse } from "node:http";
import type { Http2ServerRequest, Http2ServerResponse } from "node:http2";
import type { Duplex } from "node:stream";
import { methodNotAllowed, ProxyError } from "../../src/error.ts";
import { chooseProtocol } from "../../src/fields/protocols.ts";
import type { Context } from "../../src/options/forwardingoptions.ts";
import { forward } from "../../src/pipeline/pipeline.ts";
import type { Plan } from "../../src/plan.ts";
import type { Route } from "../../src/proxy.ts";
import { mayAsk } from "../../src/request/upgrade.ts";
import { toErrorResponse } from "../../src/response/errorresponse.ts";
import { discardBody } from "../../src/transport/message.ts";
import { isHttp2 } from "./incomingbody.ts";
import { type Head, partsOf, respond, sendParts } from "./noderesponse.ts";
import { turnAfterAll } from "./turns.ts";
import { UpgradeIncoming } from "./upgradeincoming.ts";
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

/** Makes Node's response to an upgrade, because the server hands over only the request and the socket. */
export function createResponse(req: Partial<IncomingMessage>): ServerResponse {
  return new (loadHttp().ServerResponse)(req as IncomingMessage);
}

/**
 * Returns the 100 (Continue) that a client with `Expect: 100-continue` gets before the 101 (RFC 9110 §7.8); an empty text for
 * any other client. The 100 and the 101 are sent together, because the request has no body.
 */
export function interimOf({ headers }: IncomingMessage): string {
  return headers.expect?.toLowerCase() === "100-continue" ? "HTTP/1.1 100 Continue\r\n\r\n" : "";
}

/** A listener for the event `upgrade` of an HTTP/1.1 server, and for `connect` of an HTTP/2 server, which passes no `head`. */
export type UpgradeListener = (
  req: IncomingMessage | Http2ServerRequest,
  socket: Duplex | Http2ServerResponse,
  head?: Uint8Array,
) => void;

/** Returns the supported protocol to which a request asks to switch; undefined for any other request. */
export function protocolOf(
  req: IncomingMessage | Http2ServerRequest,
  { upgrades }: Plan,
): string | undefined {
  const { method, httpVersion, headers } = req;
  // Over HTTP/2, only WebSockets are defined (RFC 8441 §5).
  if (isHttp2(req)) {
    return askedOf(req) === "websocket" && upgrades.includes("websocket") ? "websocket" : undefined;
  }
  if (httpVersion !== "1.1" || headers.upgrade === undefined) return undefined;
  const protocol = chooseProtocol(headers.upgrade, upgrades);
  const { "content-length": length, "transfer-encoding": coding } = headers;
  const isAsked = protocol !== undefined && mayAsk(protocol, method, length, coding);
  return isAsked ? protocol : undefined;
}

/** Returns the protocol that an extended CONNECT asks for, in lower case (RFC 8441 §4); undefined for any other request. */
function askedOf({ headers }: IncomingMessage | Http2ServerRequest): string | undefined {
  return (headers[":protocol"] as string | undefined)?.toLowerCase();
}

/** Returns the listener for `upgrade` that forwards requests by a route. */
export function createUpgradeListener(route: Route): UpgradeListener {
  const { plan } = route;
  return (req, socket, head = new Uint8Array()) => {
    if (isHttp2(req)) return void answerConnect(route, req, socket as Http2ServerResponse);
    const duplex = socket as Duplex;
    const client = new UpgradeSocket(duplex, head);
    const res = createResponse(req);
    const protocol = protocolOf(req, plan);
    const turn = turnAfterAll(req.socket);
    const context = { req, socket, head };
    answerUpgrade(route, {
      client,
      res,
      turn,
      context,
      read: () => new UpgradeIncoming(req, res, client, protocol, turn, plan, context),
      accept: (answer, chosen) =>
        duplex.write(interimOf(req) + writeSwitch(answer, chosen), "latin1"),
    });
  };
}

let connectStream: typeof import("./connectstream.ts") | undefined;

/** Answers a CONNECT over HTTP/2. Most servers get no WebSockets over HTTP/2, so the code is loaded with the first one. */
async function answerConnect(
  route: Route,
  req: Http2ServerRequest,
  res: Http2ServerResponse,
): Promise<void> {
  const { plan } = route;
  if (protocolOf(req, plan) === undefined) return refuseConnect(req, res);
  const { ConnectIncoming, ConnectStream } = (connectStream ??= await import("./connectstream.ts"));
  const client = new ConnectStream(req.stream);
  const context = { req, res };
  answerUpgrade(route, {
    client,
    res: res as unknown as ServerResponse,
    turn: undefined,
    context,
    read: () => new ConnectIncoming(req, res, client, plan, context),
    accept: ({ headers }) => client.accept(headers),
  });
}

/** A request for an upgrade over HTTP/1.1 or HTTP/2. Its members hide the differences between the two. */
interface Upgrade {
  readonly client: UpgradeSocket;
  readonly res: ServerResponse;
  /** Resolves when the earlier responses on the connection are sent; undefined if none is awaited. */
  readonly turn: Promise<void> | undefined;
  readonly context: Context;
  read(): UpgradeIncoming;
  /**
   * Sends the client the head of the response that opens the tunnel.
   * @param protocol the protocol to switch to
   * @throws TypeError, over HTTP/2 ProxyError, for a field that a hook or a transport has made invalid
   */
  accept(answer: Head, protocol: string): void;
}

/** Forwards an upgrade. Connects the client with the upstream, or sends the client the response that refuses the upgrade. */
function answerUpgrade({ target, plan }: Route, upgrade: Upgrade): void {
  const { client, res, turn, context } = upgrade;
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
    const incoming = upgrade.read();
    // A proxy to which the request moves (`moveWaiting`) may choose another protocol of those that the client offers.
    let protocol = "";
    const response = await forward(incoming, target, plan, context, (received, same, request) => {
      protocol = request?.upgrade ?? "";
      return respond(received, same, request);
    });
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
      upgrade.accept(parts, protocol);
      client.switchTo(tunnel, protocol === "websocket", incoming.tunnelOptions);
    } catch (error) {
      tunnel.destroy();
      throw error;
    }
  }
}

/** Answers a CONNECT over HTTP/2 that no proxy forwards: with 501 if it asks for a protocol (RFC 8441), else with 405. */
export function refuseConnect(
  req: IncomingMessage | Http2ServerRequest,
  res: Http2ServerResponse,
): void {
  const isExtended = askedOf(req) !== undefined;
  const error = isExtended
    ? new ProxyError("http_request_error", { status: 501 })
    : methodNotAllowed("CONNECT");
  void sendParts(toErrorResponse(error, "CONNECT"), res as unknown as ServerResponse);
}

/** Answers an upgrade or a CONNECT with an error. The server, which has handed the connection over, sends no answer. */
export function refuseUpgrade(
  req: IncomingMessage,
  socket: Duplex,
  head: Uint8Array,
  error: ProxyError,
): void {
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
