import type { IncomingMessage } from "node:http";
import type { Http2Server, Http2ServerResponse } from "node:http2";
import type { Server } from "node:net";
import type { Duplex } from "node:stream";
import { badRequest, methodNotAllowed, ProxyError } from "../../src/error.ts";
import { chooseProtocol } from "../../src/fields/protocols.ts";
import type { Plan } from "../../src/plan.ts";
import { isRecord } from "../../src/schema/schema.ts";
import { attachContinue, detachContinue, isMatch, type Match } from "./attachcontinue.ts";
import { isServer, refuseServer } from "./frameworkvalues.ts";
import { protocolOf, refuseConnect, refuseUpgrade, type UpgradeListener } from "./handleupgrade.ts";
import { isHttp2 } from "./incomingbody.ts";
import { chooseUpgrades, handleAsRequest } from "./internals/upgradechoice.ts";
import { hasBody } from "./nodeincoming.ts";
import { dropToken } from "./routed.ts";
import { turnAfterAll } from "./turns.ts";
import { UpgradeSocket } from "./upgradesocket.ts";

/** Which upgrades of a server the proxy takes, and whether they go through the app's routes first. */
export interface AttachOptions {
  /**
   * Returns whether a request belongs to the proxy; by default, all do. The proxy takes the upgrades of its requests, and
   * forwards their `Expect: 100-continue` to the upstream. Other upgrades are left to the server's other listeners for
   * `upgrade`. Any other request with `Expect: 100-continue` is left to the server's other listeners for `checkContinue`; if
   * there are none, its client gets 100 (Continue) when the body is read.
   *
   * If the function throws, the proxy does not take the request, and the exception goes to `console.error`.
   *
   * Over HTTP/2, the function is also called for each WebSocket. The clients of an HTTP/2 server open WebSockets over HTTP/2
   * only if the server announces them. Without `match`, `attach` makes the server do so. With `match`, set the server's own
   * option `settings: { enableConnectProtocol: true }`, but only if no other code of the server handles WebSockets, because
   * that code would get none.
   *
   * If an upgrade does not match and there is no other listener, the server treats it as an ordinary request on Node 22.21,
   * 24.9 and newer; on older versions, the client gets 501.
   * @example (req) => req.url?.startsWith("/api/") ?? false
   */
  match?: (req: IncomingMessage) => boolean;
  /**
   * Whether the upgrades go to the app as ordinary requests, through its routes and middleware. By default, they go to the
   * proxy directly, and the app does not see them.
   *
   * With this option, the tunnel begins when the app passes the request to `proxyFetch`, or to `proxy.fetch` or
   * `proxy.nodeHandler` of any proxy, and returns the response. The 101 has the header fields that middleware sets. After any
   * other response, the connection, or the HTTP/2 stream, ends. If the app neither answers nor calls a proxy within the
   * `timeout` of this proxy, the client gets 504. A GET that asks for an upgrade and has a body gets 400 before the app sees
   * it, as does a malformed WebSocket handshake over HTTP/2.
   * @default false
   */
  routes?: boolean;
}

/** The plan of a proxy, and its listener that forwards upgrades. */
interface ServerSide {
  readonly plan: Plan;
  readonly upgrade: UpgradeListener;
}

/** A proxy that is attached to a server. */
interface Attachment extends ServerSide {
  readonly match: Match;
  readonly routes: boolean;
}

/** A server to which at least one proxy has been attached. */
class AttachedServer {
  readonly #server: Server;
  readonly #attachments: Attachment[] = [];
  /** Whether this class has made the server announce WebSockets over HTTP/2. */
  #announces = false;

  constructor(server: Server) {
    this.#server = server;
    server.on("upgrade", (req: IncomingMessage, socket: Duplex, head: Buffer) =>
      this.#onUpgrade(req, socket, head),
    );
    server.on(
      "connect",
      (req: IncomingMessage, socket: Duplex | Http2ServerResponse, head?: Buffer) =>
        this.#onConnect(req, socket, head),
    );
    chooseUpgrades(
      server,
      (req, byServer) => this.#find(req) !== undefined || (byServer && this.#isLeft(req)),
      () => this.#others,
    );
  }

  /** Adds an attachment, unless an equal one was added before. Returns the attachment that the server then has. */
  add(attachment: Attachment): Attachment {
    const { plan, match, routes } = attachment;
    const same = this.#attachments.find(
      (each) => each.plan === plan && each.match === match && each.routes === routes,
    );
    if (same === undefined) this.#attachments.push(attachment);
    this.#announce();
    return same ?? attachment;
  }

  remove(attachment: Attachment): void {
    const index = this.#attachments.indexOf(attachment);
    if (index < 0) return;
    this.#attachments.splice(index, 1);
    this.#announce();
    const { match } = attachment;
    // Another attachment may have the same `match`: `takeAll` is that of every attachment without the option.
    if (this.#attachments.every((each) => each.match !== match)) {
      detachContinue(this.#server, match);
    }
  }

  get #others(): number {
    return this.#server.listenerCount("upgrade") - 1;
  }

  /** Returns the attachment whose proxy takes an upgrade; undefined if there is none. */
  #find(req: IncomingMessage): Attachment | undefined {
    return this.#attachments.find(
      ({ plan, match }) => protocolOf(req, plan) !== undefined && isMatch(match, req),
    );
  }

  /** Whether an upgrade that no proxy takes is left to another listener. */
  #isLeft(req: IncomingMessage): boolean {
    return this.#others > 0 && !asksForHttp2(req);
  }

  #onUpgrade(req: IncomingMessage, socket: Duplex, head: Buffer): void {
    const taking = this.#find(req);
    if (taking !== undefined) return taking.upgrade(req, socket, head);
    if (this.#isLeft(req)) return;
    // If no proxy carries an upgrade, versions of Node with `shouldUpgradeCallback` give it to the app as an ordinary request. Do
    // the same on older versions.
    const isCarried = this.#attachments.some(({ plan }) => protocolOf(req, plan) !== undefined);
    if (!isCarried && handleAsRequest(this.#server, req, socket, head)) return;
    refuseUpgrade(req, socket, head, new ProxyError("http_request_error", { status: 501 }));
  }

  /**
   * Forwards WebSockets over HTTP/2, for which clients send CONNECT (RFC 8441). Refuses any other CONNECT, unless the app has
   * its own listener: without any listener, Node closes an HTTP/1.1 connection without an answer.
   */
  #onConnect(
    req: IncomingMessage,
    socket: Duplex | Http2ServerResponse,
    head: Buffer = Buffer.alloc(0),
  ): void {
    const taking = isHttp2(req) ? this.#find(req) : undefined;
    if (taking !== undefined) return taking.upgrade(req, socket, head);
    if (this.#server.listenerCount("connect") > 1) return;
    if (isHttp2(req)) refuseConnect(req, socket as Http2ServerResponse);
    else refuseUpgrade(req, socket as Duplex, head, methodNotAllowed("CONNECT"));
  }

  /**
   * Announces WebSockets over HTTP/2 to the clients of an HTTP/2 server, if a proxy takes all WebSockets. Browsers then open
   * all WebSockets over HTTP/2, and another listener for `upgrade` would get none.
   */
  #announce(): void {
    const takesAll = this.#attachments.some(
      ({ match, plan }) => match === takeAll && plan.upgrades.includes("websocket"),
    );
    if (takesAll === this.#announces) return;
    this.#announces = takesAll;
    const { updateSettings } = this.#server as Partial<Http2Server>;
    updateSettings?.call(this.#server as Http2Server, { enableConnectProtocol: takesAll });
  }
}

/**
 * Whether a request asks to switch to HTTP/2 and to nothing else. No Node server can do this (RFC 9113 §3.1 has removed
 * `h2c`), but some clients ask for it with the first request on every connection, and the app's own listeners would leave that
 * request without an answer.
 */
function asksForHttp2({ headers }: IncomingMessage): boolean {
  const offers = headers.upgrade?.split(",") ?? [];
  return offers.every((offer) => chooseProtocol(offer, ["h2c", "h2"]) !== undefined);
}

const servers: WeakMap<Server, AttachedServer> = new WeakMap();

/** The part of an srvx server, also under h3, that `attach` and `plugin` use. */
export interface SrvxServer {
  /** The name of the runtime. */
  readonly runtime: string;
  /** On Node: the underlying server of `node:http`. */
  readonly node?: { readonly server?: unknown } | undefined;
  /** Makes the server listen. */
  serve(): unknown;
}

/**
 * Attaches a proxy to a Node server, or to the Node server under an srvx server.
 * @returns a function that detaches the proxy
 * @throws TypeError for a value that is not such a server, and for a wrong option
 */
export function attachTo(
  server: Server | SrvxServer,
  { plan, upgrade }: ServerSide,
  options: AttachOptions = {},
): () => void {
  const { match = takeAll, routes = false } = readOptions(options);
  const isSrvx = typeof (server as SrvxServer | undefined)?.serve === "function";
  const inner = isSrvx ? (server as SrvxServer).node?.server : server;
  if (!isServer(inner)) throw refuseServer(server);
  const known = servers.get(inner as Server) ?? new AttachedServer(inner as Server);
  servers.set(inner as Server, known);
  const listener = routes ? passToApp(inner as Server, plan) : upgrade;
  const attachment = known.add({ plan, upgrade: listener, match, routes });
  attachContinue(inner as Server, match);
  return () => known.remove(attachment);
}

/** Returns a listener for `upgrade` that passes each request to the app. */
function passToApp(server: Server, plan: Plan): UpgradeListener {
  const loading = import("./routeupgrade.ts");
  // Add one listener for all proxies of the server. It must run before the app's listeners, which could otherwise pass a
  // client's forged token to a proxy.
  server.off("request", dropToken).prependListener("request", dropToken);
  return (request, stream, head = new Uint8Array()) => {
    if (isHttp2(request)) {
      const res = stream as Http2ServerResponse;
      return void import("./routeconnect.ts").then(({ routeConnect }) =>
        process.nextTick(() => routeConnect(server, request, res, plan)),
      );
    }
    const [req, socket] = [request, stream as Duplex];
    // Node stops parsing the connection after the head of an upgrade request, so the app could not read the body.
    if (hasBody(req)) return refuseUpgrade(req, socket, head, badRequest("body with Upgrade"));
    const client = new UpgradeSocket(socket, head);
    void Promise.all([loading, turnAfterAll(req.socket)]).then(([{ routeUpgrade }]) =>
      // Call the app outside the promise, so that its exception ends the process, as with any other request.
      process.nextTick(() => routeUpgrade(server, req, client, plan)),
    );
  };
}

/** The type of each option. */
const KINDS: Readonly<Record<string, string>> = {
  match: "function",
  routes: "boolean",
} satisfies Record<keyof AttachOptions, string>;

/**
 * Returns the options. Unknown options and wrong values are refused: if `match` were ignored, the proxy would take every
 * upgrade, and if `routes` were ignored, no middleware would check the upgrades.
 * @throws TypeError that names the options
 */
function readOptions(options: AttachOptions): AttachOptions {
  const isRight =
    isRecord(options) &&
    Object.entries(options).every(([name, value]) =>
      value === undefined ? name in KINDS : typeof value === KINDS[name],
    );
  if (isRight) return options;
  throw new TypeError(
    "fetchway: attach(server, { match, routes }): use an object whose only options are `match`, a function of the request, and `routes`, true or false",
  );
}

function takeAll(): boolean {
  return true;
}

/**
 * Attaches a proxy to an srvx server that is being created. The Node server under it exists when srvx begins to listen, but not
 * yet when srvx calls the plugins. On other runtimes there is nothing to attach to.
 */
export function plugInto(
  server: SrvxServer,
  serverSide: ServerSide,
  options?: AttachOptions,
): void {
  if (server.runtime !== "node") return;
  const serve = server.serve.bind(server);
  server.serve = () => {
    attachTo(server, serverSide, options);
    return serve();
  };
}
