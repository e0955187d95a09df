/** The connections of clients on Node: how many there are, which are idle, and what they are doing. */
import type { IncomingMessage, ServerResponse } from "node:http";
import type {
  Http2ServerRequest,
  Http2ServerResponse,
  ServerHttp2Session,
  ServerHttp2Stream,
} from "node:http2";
import type { Server as NetServer, Server, Socket } from "node:net";
import { endWhenLost } from "#fetchway/node";
import { unmapAddress } from "#fetchway/requests";
import { closeListeners } from "../serve/listeners.ts";
import type { Overload } from "./overload.ts";

/** The limit beyond which a connection or a tunnel is refused: the one for all clients, or the one for an address. */
export type Limit = "maxConnections" | "maxPerAddress";

export interface ClientConnection {
  /** The socket that the server reads and writes: on a TLS connection, the TLS socket as soon as the handshake has ended. */
  socket: Socket;
  /** The connection below TLS. */
  readonly raw: Socket;
  /** The session, if the client speaks HTTP/2. */
  session: ServerHttp2Session | undefined;
  /**
   * The key under which `maxPerAddress` counts the connection (see `groupOf`); undefined if the client has no address, or an
   * exempt one.
   */
  group: string | undefined;
  /** The address of the client, if a trusted peer has named one; see `nameClient`. */
  clientAddress: string | undefined;
  /** When the connection was accepted, on the clock of `performance.now()`. */
  readonly openedAt: number;
  /** The limit beyond which the connection is, if any. Its first request then gets 503, and the connection is closed. */
  beyond: Limit | undefined;
  /**
   * Whether the connection was idle when it was turned away. Such a connection counts as evicted, and also as refused if a
   * request arrives.
   */
  wasIdle: boolean;
  /** The number of requests whose responses are not complete, including tunnels on HTTP/2 streams. */
  requests: number;
  total: number;
  /** Whether the connection has been, or is being, switched to another protocol. */
  isTunnel: boolean;
  /** The number of tunnels on HTTP/2 streams of the connection. */
  tunnels: number;
  /**
   * When the idle time began, on the clock of `performance.now()`: when the server began to stop, or when the connection's last
   * request ended, if that was later. 0 until the server begins to stop.
   */
  idleSince: number;
  /** Whether the connection will be closed after its running requests, because the process is overloaded. */
  isLeaving: boolean;
}

export type RunningResponse = ServerResponse | Http2ServerResponse;
type Message = IncomingMessage | Http2ServerRequest;

/** The limits for the connections of clients. */
export interface ConnectionLimits {
  readonly maxConnections: number;
  readonly maxPerAddress: number;
  /** The limit of open files, if `maxConnections` was computed from it. */
  readonly openFiles?: number | undefined;
}

/** The counters of the clients' connections. */
export interface ClientStats {
  readonly connections: number;
  /** Connections and HTTP/2 streams that carry another protocol, such as WebSockets. */
  readonly tunnels: number;
  /** New connections, and tunnels on HTTP/2 streams, that were refused at a limit. */
  readonly refused: number;
  /** Idle connections that were closed at a limit, or in an overload. */
  readonly evicted: number;
  /** The number of overloaded processes. Each of them refuses new clients again and again, for some milliseconds each time. */
  readonly overloaded: number;
  /** Requests that were ended because no more of their bodies arrived (`bodyTimeout`). */
  readonly slowBodies: number;
  /** Connections and HTTP/2 streams that were ended because the client did not read (`sendTimeout`). */
  readonly slowReaders: number;
}

/** The counters of `ClientStats` that `ClientConnections` itself increases. */
export interface ConnectionCounts {
  /** New connections, and tunnels on HTTP/2 streams, that were refused because all other connections were in use. */
  refused: number;
  /** Idle connections that were closed for new ones, or in an overload. */
  evicted: number;
}

/**
 * Counts the connections of one or more servers, and keeps all of them together below the limits.
 *
 * At a limit, an idle connection is closed, as in nginx, so that clients that open connections and send nothing cannot keep
 * others out. At the limit for all clients, the connection that has been idle longest is closed; at the limit for an address,
 * the oldest of the address's idle connections. If that connection is itself new (see `isNew`), it stays open until its first
 * request has got 503. If none is idle, the new connection is refused: at the limit for all clients, its first request gets
 * 503; at the limit for its address, the connection is reset.
 *
 * A tunnel on an HTTP/2 stream counts as one more connection, because it may occupy a connection to an upstream, and a client
 * may open many tunnels on one connection. Beyond a limit, the request for the tunnel gets 503.
 */
export class ClientConnections {
  readonly all: Set<ClientConnection> = new Set();
  /** The responses that are not complete, with their connections. */
  readonly running: Map<RunningResponse, ClientConnection | undefined> = new Map();
  /** The HTTP/2 streams that carry another protocol. */
  readonly streams: Set<ServerHttp2Stream> = new Set();
  readonly counts: ConnectionCounts = { refused: 0, evicted: 0 };
  /** The listening sockets: the servers themselves, and further sockets that pass their connections to a server. */
  readonly listeners: NetServer[] = [];
  /** Refuses clients while the process is overloaded; undefined if an overload is not noticed. */
  overload: Overload | undefined;
  readonly #servers: Server[] = [];
  readonly #limits: ConnectionLimits;
  /** When the server stopped accepting connections, on the clock of `performance.now()`. */
  #stoppedAt: number | undefined;
  /** The time until which no refusal is reported, on the clock of `performance.now()`. */
  #quietUntil = 0;
  readonly #report: (reason: string) => void;
  readonly #isExempt: (address: string) => boolean;
  /** Connections without a request and without a tunnel; the one that has been idle longest is the first. */
  readonly #idle: Set<ClientConnection> = new Set();
  /** Connections beyond the limits, which wait for the request that gets 503; the first one has waited longest. */
  readonly #turnedAway: Set<ClientConnection> = new Set();
  readonly #groups: Map<string, Set<ClientConnection>> = new Map();
  readonly #bySocket: WeakMap<object, ClientConnection> = new WeakMap();
  /** The connections of a TLS server whose handshakes have not ended, by the client's address and port. */
  readonly #handshaking: Map<string, ClientConnection> = new Map();

  /**
   * @param report is called when connections are refused, at most once a minute
   * @param isExempt returns whether an address, such as that of a trusted proxy, is exempt from `maxPerAddress`
   */
  constructor(
    server: Server,
    limits: ConnectionLimits,
    report: (reason: string) => void,
    isExempt: (address: string) => boolean = () => false,
  ) {
    this.#limits = limits;
    this.#report = report;
    this.#isExempt = isExempt;
    this.watch(server);
  }

  /** Counts the connections of one more server together with the others. Call it before the server listens. */
  watch(server: Server): void {
    this.#servers.push(server);
    this.listeners.push(server);
    const isSecure = "setSecureContext" in server;
    // This listener must run before the others, which read the address.
    server.prependListener("secureConnection", (socket: Socket) => {
      const connection = this.#handshaking.get(keyOf(socket));
      if (connection?.clientAddress === undefined) return;
      setAddress(socket, connection.clientAddress);
      this.#handshaking.set(keyOf(socket), connection);
    });
    server.on("connection", (socket: Socket) => this.#onConnection(socket, isSecure));
    server.on("session", (session: ServerHttp2Session, plain?: Socket) => {
      // Watch the session now: the proxy would watch it only from its first request on, and the client may
      // disconnect earlier.
      endWhenLost(session);
      const connection = plain
        ? this.#bySocket.get(plain)
        : this.#handshaking.get(keyOf(session.socket));
      if (connection === undefined) return;
      connection.session = session;
      this.#bySocket.set(session, connection);
    });
    server.on("secureConnection", (socket: Socket) => {
      const connection = this.#handshaking.get(keyOf(socket));
      if (connection === undefined) return;
      connection.socket = socket;
      this.#bySocket.set(socket, connection);
      this.#handshaking.delete(keyOf(socket));
    });
    server.on("request", (req: Message, res: RunningResponse) => this.#onRequest(req, res));
  }

  /**
   * Notes that a request asks to switch its connection or its HTTP/2 stream to another protocol. From then on, the connection
   * does not count as idle. If an HTTP/1.1 request is not upgraded, the server emits `request`, and the connection counts as an
   * ordinary one again.
   * @returns the limit beyond which a stream is
   */
  noteUpgrade(message: Message): Limit | undefined {
    if ("stream" in message) return this.#noteStream(message.stream);
    const { headers, socket } = message;
    const connection = headers.upgrade === undefined ? undefined : this.#bySocket.get(socket);
    if (connection === undefined) return undefined;
    connection.isTunnel = true;
    this.#idle.delete(connection);
    return undefined;
  }

  #noteStream(stream: ServerHttp2Stream): Limit | undefined {
    const connection = stream.session && this.#bySocket.get(stream.session);
    if (connection === undefined || this.streams.has(stream)) return undefined;
    // Begin the request first: otherwise this connection could be closed as idle to make room for its own tunnel.
    this.#beginRequest(connection);
    // The address may have become exempt since the connection was accepted.
    const address = addressOf(connection);
    const beyond = this.#findLimit(this.#groupFor(address), address);
    if (beyond === undefined) {
      this.streams.add(stream);
      connection.tunnels++;
    }
    stream.once("close", () => {
      if (this.streams.delete(stream)) connection.tunnels--;
      this.#endRequest(connection);
    });
    return beyond;
  }

  /**
   * Returns the limit beyond which the connection of a request is, if any. The request must then get 503, and its connection
   * accepts no further request.
   */
  limitBeyond(message: Message): Limit | undefined {
    const owner = "stream" in message ? message.stream.session : message.socket;
    const connection = owner && this.#bySocket.get(owner);
    if (connection?.beyond === undefined) return undefined;
    if (connection.wasIdle) this.#countRefused(connection.beyond, addressOf(connection));
    connection.wasIdle = false;
    if (connection.session?.destroyed === false) connection.session.close();
    return connection.beyond;
  }

  /** The number of connections and HTTP/2 streams that carry another protocol. */
  get tunnels(): number {
    let count = this.streams.size;
    for (const { isTunnel } of this.all) if (isTunnel) count++;
    return count;
  }

  /**
   * Stops accepting connections, and announces to clients that their open connections will be closed.
   *
   * Idle connections stay open until `closeIdle`, because a request may be on its way on any of them. That request is answered
   * with `Connection: close`. Resolves when the close has been announced.
   */
  async stopAccepting(): Promise<void> {
    // When a listening socket closes, the system resets the connections that Node has not accepted yet. In each of these two
    // turns of the event loop, Node accepts at least one connection from each listening socket. `close` of the HTTP server is
    // not called, because it closes idle connections immediately. The announcement comes last, because it makes clients open
    // new connections.
    this.overload?.stop();
    await new Promise(setImmediate);
    await new Promise(setImmediate);
    closeListeners(this.listeners);
    this.#announceStop();
  }

  #announceStop(): void {
    const now = performance.now();
    this.#stoppedAt = now;
    // This listener must run before the listener of the app, which may send the head of the response synchronously.
    for (const server of this.#servers) {
      server.prependListener("request", (_: Message, res: RunningResponse) => closeAfter(res));
    }
    for (const res of this.running.keys()) closeAfter(res);
    for (const connection of this.all) {
      connection.idleSince = now;
      // This first GOAWAY refuses no request, but nghttp2 ignores the requests that arrive after it. The second one, which
      // `session.close` sends later, refuses these, so that clients repeat them (RFC 9113 §6.8). `goaway` throws if the session
      // has been destroyed, and the socket of a destroyed session may still be open.
      if (connection.session?.destroyed === false) connection.session.goaway(0, LAST_STREAM);
    }
  }

  /**
   * Closes the connections that have been idle for `grace` milliseconds. The time before the server began to stop does not
   * count. Once these milliseconds have passed, an HTTP/2 connection in use accepts no more requests, and is closed after the
   * running ones.
   */
  closeIdle(grace: number): void {
    if (this.#stoppedAt === undefined) return;
    const latest = performance.now() - grace;
    for (const connection of this.#idle) {
      if (connection.idleSince > latest) continue;
      if (connection.session === undefined) closeConnection(connection);
      else connection.session.close();
    }
    for (const { session, idleSince } of this.all) if (idleSince <= latest) session?.close();
  }

  /**
   * Closes a share of the idle connections immediately. Of the connections that wait for a response, closes a share after that
   * response. Of the idle connections, it closes those that have been idle longest; of the waiting ones, those whose requests
   * began last. New idle connections (see `isNew`) stay.
   * @param share from 0 to 1
   */
  shed(share: number): void {
    const now = performance.now();
    const idle = [...this.#idle].filter((connection) => !isNew(connection, now));
    for (const connection of idle.slice(0, share * idle.length)) {
      this.counts.evicted++;
      this.#remove(connection);
      closeConnection(connection);
    }
    const waiting = new Map<ClientConnection, RunningResponse>();
    for (const [res, connection] of this.running) {
      if (connection === undefined || connection.isLeaving || res.headersSent) continue;
      waiting.set(connection, res);
    }
    for (const [connection, res] of [...waiting].slice((1 - share) * waiting.size)) {
      connection.isLeaving = true;
      leaveAfter(connection, res);
    }
  }

  /** Sets a client's address, which a trusted peer has named. If the address is at its limit, resets the connection. */
  nameClient(socket: Socket, address: string): void {
    const connection = this.#bySocket.get(socket);
    if (connection === undefined) return;
    setAddress(socket, address);
    connection.clientAddress = address;
    const group = this.#groupFor(address);
    if (!this.all.has(connection) || group === undefined) return;
    if (this.#isOver(group, address)) return resetConnection(socket);
    connection.group = group;
    addTo(this.#groups, group, connection);
  }

  #groupFor(address: string): string | undefined {
    // The clients of a Unix domain socket have no address, and must not be counted as a single client.
    return address === "" || this.#isExempt(address) ? undefined : groupOf(address);
  }

  /** Returns whether an address is at its limit. If it is, but has an idle connection, evicts that and returns false. */
  #isOver(group: string | undefined, address: string): boolean {
    const members = group === undefined ? undefined : this.#groups.get(group);
    if (this.#countIn(members) < this.#limits.maxPerAddress) return false;
    if (this.#evict("maxPerAddress", members)) return false;
    this.#countRefused("maxPerAddress", address);
    return true;
  }

  /** Returns the limit at which a new connection or tunnel of an address must be refused, if any. */
  #findLimit(group: string | undefined, address: string): Limit | undefined {
    if (this.#isFull(address)) return "maxConnections";
    return this.#isOver(group, address) ? "maxPerAddress" : undefined;
  }

  #onConnection(socket: Socket, isSecure: boolean): void {
    // `upgradechoice.ts` may give a connection to the server a second time.
    if (this.#bySocket.has(socket)) return;
    if (this.overload?.acceptProbe(socket)) return;
    const address = unmapAddress(socket.remoteAddress ?? "");
    const group = this.#groupFor(address);
    const limit = this.#findLimit(group, address);
    if (limit === "maxPerAddress") return resetConnection(socket);
    const connection: ClientConnection = {
      socket,
      raw: socket,
      session: undefined,
      group,
      clientAddress: undefined,
      openedAt: performance.now(),
      beyond: undefined,
      wasIdle: false,
      requests: 0,
      total: 0,
      isTunnel: false,
      tunnels: 0,
      idleSince: 0,
      isLeaving: this.overload?.isActive === true,
    };
    if (limit !== undefined) this.#turnAway(connection, limit);
    else {
      this.all.add(connection);
      this.#idle.add(connection);
      if (group !== undefined) addTo(this.#groups, group, connection);
    }
    this.#bySocket.set(socket, connection);
    if (isSecure) this.#handshaking.set(keyOf(socket), connection);
    const key = isSecure ? keyOf(socket) : "";
    socket.once("close", () => {
      if (this.#handshaking.get(key) === connection) this.#handshaking.delete(key);
      // Node's native code holds a callback for each SETTINGS frame that the client has not acknowledged, and the callback
      // holds the session. If this map still led from the session to its socket, none of these objects would be
      // garbage-collected.
      if (connection.session !== undefined) this.#bySocket.delete(connection.session);
      this.#remove(connection);
    });
  }

  /**
   * Returns whether the server is at its limit, tunnels on HTTP/2 streams included. If it is, but a connection is idle, evicts
   * that connection and returns false.
   */
  #isFull(address: string): boolean {
    const count = this.all.size + this.streams.size;
    if (count < this.#limits.maxConnections || this.#evict("maxConnections", this.#idle))
      return false;
    this.#countRefused("maxConnections", address);
    return true;
  }

  /** Counts the connections of an address, and the tunnels on their HTTP/2 streams. */
  #countIn(members: ReadonlySet<ClientConnection> = new Set()): number {
    let count = members.size;
    if (this.streams.size > 0) for (const { tunnels } of members) count += tunnels;
    return count;
  }

  #remove(connection: ClientConnection): void {
    const { group } = connection;
    this.all.delete(connection);
    this.#idle.delete(connection);
    const members = group === undefined ? undefined : this.#groups.get(group);
    members?.delete(connection);
    if (members?.size === 0) this.#groups.delete(group as string);
  }

  #countRefused(limit: Limit, address: string): void {
    this.counts.refused++;
    const now = performance.now();
    if (now < this.#quietUntil) return;
    this.#quietUntil = now + QUIET;
    this.#report(describe(limit, this.#limits, address));
  }

  /**
   * Lets a connection wait for its first request, which gets 503. Only `maxTurnedAway` connections may wait, each for
   * `TURNED_AWAY_TIME`.
   */
  #turnAway(connection: ClientConnection, limit: Limit): void {
    connection.beyond = limit;
    this.#turnedAway.add(connection);
    const max = maxTurnedAway(this.#limits.maxConnections);
    for (const oldest of this.#turnedAway) {
      if (this.#turnedAway.size <= max) break;
      this.#turnedAway.delete(oldest);
      resetConnection(oldest.socket);
      oldest.raw.destroy();
    }
    const late = (): void => closeConnection(connection);
    const timer = setTimeout(late, TURNED_AWAY_TIME).unref();
    connection.raw.once("close", () => {
      clearTimeout(timer);
      this.#turnedAway.delete(connection);
    });
  }

  /**
   * Evicts the first idle connection among `among`: closes it, or turns it away if it is new. Returns false if no connection
   * is idle.
   */
  #evict(limit: Limit, among: Iterable<ClientConnection> = []): boolean {
    for (const connection of among) {
      if (!this.#idle.has(connection)) continue;
      this.counts.evicted++;
      // From now on, the connection does not count, although its socket closes later.
      this.#remove(connection);
      // The first request of a new connection may be on its way, and would be lost if the connection were closed.
      connection.wasIdle = isNew(connection, performance.now());
      if (connection.wasIdle) this.#turnAway(connection, limit);
      else closeConnection(connection);
      return true;
    }
    return false;
  }

  #onRequest(req: Message, res: RunningResponse): void {
    const owner = "stream" in req ? req.stream.session : req.socket;
    const connection = owner && this.#bySocket.get(owner);
    this.running.set(res, connection);
    this.overload?.noteRequest();
    if (connection !== undefined) this.#beginRequest(connection);
    if (connection?.isLeaving) leaveAfter(connection, res);
    res.once("close", () => {
      this.running.delete(res);
      if (connection !== undefined) this.#endRequest(connection);
    });
  }

  #beginRequest(connection: ClientConnection): void {
    connection.isTunnel = false;
    connection.total++;
    if (connection.requests++ === 0) this.#idle.delete(connection);
  }

  #endRequest(connection: ClientConnection): void {
    if (--connection.requests > 0) return;
    if (this.#stoppedAt !== undefined) connection.idleSince = performance.now();
    if (this.all.has(connection)) this.#idle.add(connection);
  }
}

/**
 * Milliseconds for which a connection without a request counts as new. A busy event loop may read the first request this
 * late.
 */
const NEW_TIME = 1000;

function isNew({ total, openedAt }: ClientConnection, now: number): boolean {
  return total === 0 && now - openedAt < NEW_TIME;
}

/** Milliseconds for which a connection beyond the limits waits for its first request. */
const TURNED_AWAY_TIME = 5000;

/**
 * Returns how many connections beyond a limit may wait for their first request at the same time. Many may have to wait: if
 * many clients connect at the same time, each connection waits until its request arrives.
 */
export function maxTurnedAway(maxConnections: number): number {
  return Math.max(32, Math.min(1024, Math.floor(maxConnections / 8)));
}

/** The minimum number of milliseconds between two reports of refused connections. */
const QUIET = 60_000;

/** Describes that all connections within a limit are in use, and what the operator can do. */
function describe(
  limit: Limit,
  { maxConnections, maxPerAddress, openFiles }: ConnectionLimits,
  address: string,
): string {
  if (limit === "maxPerAddress") {
    const fix = "raise --max-per-address, or name a proxy in --trust-proxy";
    return `${address} has ${maxPerAddress} in use; ${fix}`;
  }
  return openFiles === undefined
    ? `all ${maxConnections} are in use; raise --max-connections, and ulimit -n to twice as many`
    : `all ${maxConnections} are in use, which ${openFiles} open files allow; raise ulimit -n`;
}

/** The highest identifier of an HTTP/2 stream (RFC 9113 §5.1.1). */
const LAST_STREAM = 2 ** 31 - 1;

/** Makes the server close an HTTP/1.1 connection after a response, if the head of the response has not been sent. */
function closeAfter(res: RunningResponse): void {
  if (!("stream" in res) && !res.headersSent) res.setHeader("connection", "close");
}

/** Makes the server close a connection after its running responses, of which `res` is one. */
function leaveAfter({ session }: ClientConnection, res: RunningResponse): void {
  closeAfter(res);
  if (session?.closed === false) session.close();
}

function addressOf({ clientAddress, socket }: ClientConnection): string {
  return clientAddress ?? unmapAddress(socket.remoteAddress ?? "");
}

/** Replaces `remoteAddress` of a socket. */
function setAddress(socket: Socket, address: string): void {
  Object.defineProperty(socket, "remoteAddress", { value: address, configurable: true });
}

function keyOf({ remoteAddress, remotePort }: Socket): string {
  return `${remoteAddress} ${remotePort}`;
}

function addTo<Member>(sets: Map<string, Set<Member>>, key: string, member: Member): void {
  const set = sets.get(key);
  if (set === undefined) sets.set(key, new Set([member]));
  else set.add(member);
}

/**
 * Returns a text for all addresses that count as one client: an IPv4 address itself, or the /64 network of an IPv6 address. A
 * client can choose any address in such a network, which is the smallest one that a subscriber gets (RFC 6177).
 */
export function groupOf(address: string): string {
  if (!address.includes(":")) return address;
  const [front = "", back] = (address.split("%")[0] ?? "").split("::");
  const first = front.split(":").filter(Boolean);
  const last = back === undefined ? [] : back.split(":").filter(Boolean);
  const zeros = back === undefined ? 0 : 8 - first.length - last.length;
  const words = [...first, ...Array.from({ length: zeros }, () => "0"), ...last];
  return `${words.slice(0, 4).join(":")}::/64`;
}

/**
 * Closes a connection, and drops the bytes that wait to be sent, so that the client cannot mistake the response for a complete
 * one. Only a TCP socket can be reset; a TLS connection is closed without close_notify instead.
 */
export function resetConnection(socket: Socket): void {
  try {
    socket.resetAndDestroy();
  } catch {
    socket.destroy();
  }
}

/** Closes a connection. A client that speaks HTTP/2 gets GOAWAY, so that it sends its next request on another connection. */
export function closeConnection({ session, socket, raw }: ClientConnection): void {
  if (session !== undefined && !session.destroyed) session.destroy();
  else {
    socket.destroy();
    raw.destroy();
  }
}
