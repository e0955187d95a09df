/** The clients of a soak. Each kind of fault is about 1 % of their actions; all others are ordinary requests. */
import { type ClientHttp2Session, connect as connectHttp2 } from "node:http2";
import { Agent, request, type RequestOptions } from "node:https";
import { connect as connectTls, type TLSSocket } from "node:tls";
import { WebSocket } from "ws";
import { requestFor } from "./_handshake.ts";
import { LARGE } from "./_upstreams.ts";

/** Milliseconds after which a client gives up. */
const PATIENCE = 30_000;

type Deed = () => Promise<string>;

/** Sends requests, and counts their outcomes. */
export class Traffic {
  /** The number of outcomes, by kind and outcome. */
  readonly outcomes: Map<string, number> = new Map();
  ordinary = 0;
  /** The number of ordinary requests that were not answered with 200. */
  unexpected = 0;
  running = 0;
  readonly #port: number;
  readonly #ca: string;
  readonly #agent: Agent;
  #session: ClientHttp2Session | undefined;
  /** The faults, each of which is chosen equally often. */
  readonly #faults: Readonly<Record<string, Deed>>;

  constructor(port: number, ca: string) {
    this.#port = port;
    this.#ca = ca;
    this.#agent = new Agent({ keepAlive: true, maxSockets: 16, ca });
    const http1 = (path: string, options?: RequestOptions) => (): Promise<string> =>
      this.#ask(path, options);
    const raw = (text: string, act: (socket: TLSSocket) => void) => (): Promise<string> =>
      this.#sendRaw(text, act);
    const http2 = (path: string, act?: Http2Act) => (): Promise<string> =>
      this.#askHttp2(path, act);
    const upload = "POST /up HTTP/1.1\r\nHost: soak\r\nContent-Length: 100000\r\n\r\nabc";
    const destroySoon = (socket: TLSSocket): void => void setTimeout(() => socket.destroy(), 50);
    const onceAnswered =
      (act: (socket: TLSSocket) => void) =>
      (socket: TLSSocket): void =>
        void socket.once("data", () => act(socket));
    this.#faults = {
      "upstream: 500": http1("/error"),
      "upstream: reset": http1("/reset"),
      "upstream: garbage": http1("/garbage"),
      "upstream: cut response": http1("/cut"),
      "upstream: does not read the body": http1("/unread", { method: "POST" }),
      "upstream of HTTP/2: 500": http1("/faults/error"),
      "upstream of HTTP/2: reset": http1("/faults/reset"),
      "upstream of HTTP/2: connection lost": http1("/faults/lost"),
      "client: leaves before the response": raw(
        "GET /late HTTP/1.1\r\nHost: a\r\n\r\n",
        destroySoon,
      ),
      "client: leaves in the response": raw(
        "GET /large HTTP/1.1\r\nHost: a\r\n\r\n",
        onceAnswered((socket) => socket.destroy()),
      ),
      "client: leaves in its body": raw(upload, destroySoon),
      "client: leaves an event stream": raw(
        "GET /events HTTP/1.1\r\nHost: a\r\n\r\n",
        onceAnswered(destroySoon),
      ),
      "client: sends garbage": raw("garbage\r\n\r\n", () => {}),
      "client: sends a bad chunk": raw(
        "POST /up HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\nZZ\r\n",
        () => {},
      ),
      "client: reads slowly": raw("GET /large HTTP/1.1\r\nHost: a\r\n\r\n", (socket) => {
        const timer = setInterval(() => void socket.read(50_000), 100);
        socket.on("readable", () => {}).on("close", () => clearInterval(timer));
        setTimeout(() => socket.destroy(), 4_000);
      }),
      "client: does not read": raw("GET /large HTTP/1.1\r\nHost: a\r\n\r\n", (socket) => {
        socket.pause();
        setTimeout(() => socket.destroy(), 4_000);
      }),
      "client of HTTP/2: resets": http2("/late", (stream) => stream.close(8)),
      "client of HTTP/2: resets in the response": http2("/large", (stream) =>
        stream.once("data", () => stream.close(8)),
      ),
      "client of HTTP/2: leaves": http2("/late", (_, session) => session.destroy()),
      "client of HTTP/2: leaves in its body": http2("/up", (stream, session) => {
        stream.write(LARGE);
        setTimeout(() => session.destroy(), 20);
      }),
      "tunnel: closed in order": () => this.#openWebSocket(),
      "tunnel: client ends without a close frame": raw(
        requestFor("/ws/hung"),
        onceAnswered((socket) => socket.destroy()),
      ),
      "tunnel: client sends a close frame and ends": raw(
        requestFor("/ws/hung"),
        onceAnswered((socket) => socket.end(Buffer.from([0x88, 0x80, 0, 0, 0, 0]))),
      ),
      "tunnel: upstream ends": raw(requestFor("/ws/ends"), (socket) =>
        setTimeout(() => socket.destroy(), 500),
      ),
      "tunnel: upstream resets": raw(requestFor("/ws/resets"), () => {}),
      "tunnel: refused": raw(requestFor("/error"), () => {}),
    };
  }

  /** Makes one random request or fault, and resolves when it is over. */
  async act(): Promise<void> {
    const kinds = Object.keys(this.#faults);
    const index = Math.floor(Math.random() * 100);
    const kind = kinds[index];
    this.running++;
    if (kind === undefined) await this.#actOrdinarily(index);
    else this.#count(kind, await (this.#faults[kind] as Deed)().catch(String));
    this.running--;
  }

  /** Closes the connections that are kept for further requests. */
  close(): void {
    this.#agent.destroy();
    this.#session?.destroy();
  }

  async #actOrdinarily(index: number): Promise<void> {
    const deeds: readonly Deed[] = [
      () => this.#ask("/"),
      () => this.#ask("/", { method: "POST" }),
      () => this.#ask("/large"),
      () => this.#ask("/h2/a"),
      () => this.#askHttp2("/"),
      () => this.#askHttp2("/h2/a"),
    ];
    const outcome = await (deeds[index % deeds.length] as Deed)().catch(String);
    this.ordinary++;
    if (outcome === "200") return;
    this.unexpected++;
    this.#count("ordinary", outcome);
  }

  #count(kind: string, outcome: string): void {
    const key = `${kind}: ${outcome}`;
    this.outcomes.set(key, (this.outcomes.get(key) ?? 0) + 1);
  }

  /** Sends an HTTP/1.1 request, and resolves to its status, or to the message of its error. */
  #ask(path: string, options: RequestOptions = {}): Promise<string> {
    return new Promise((resolve) => {
      const given = { ca: this.#ca, agent: this.#agent, timeout: PATIENCE, ...options };
      const sent = request(`https://localhost:${this.#port}${path}`, given, (response) => {
        response.resume();
        response
          .on("error", () => resolve("cut"))
          .on("end", () => resolve(`${response.statusCode}`));
      });
      sent.on("timeout", () => sent.destroy(new Error("no answer")));
      sent.on("error", ({ message }: Error) => resolve(message));
      sent.end(options.method === "POST" ? "x".repeat(20_000) : undefined);
    });
  }

  /** Sends an HTTP/2 request; with `act`, on a separate connection. */
  #askHttp2(path: string, act?: Http2Act): Promise<string> {
    return new Promise((resolve) => {
      const session = act === undefined ? this.#sharedSession() : this.#openSession();
      const stream = session.request({
        ":path": path,
        ...(path === "/up" && { ":method": "POST" }),
      });
      let status = "";
      stream.setTimeout(PATIENCE, () => stream.close(8));
      stream.on("response", (headers) => (status = String(headers[":status"])));
      stream
        .on("error", () => {})
        .on("close", () => {
          resolve(stream.rstCode === 0 ? status : "reset");
          if (act !== undefined) session.close();
        });
      stream.resume();
      if (path !== "/up") stream.end();
      act?.(stream, session);
    });
  }

  #openSession(): ClientHttp2Session {
    const session = connectHttp2(`https://localhost:${this.#port}`, { ca: this.#ca });
    return session.on("error", () => {});
  }

  /** Returns the HTTP/2 session that requests share. It is replaced from time to time. */
  #sharedSession(): ClientHttp2Session {
    if (this.#session === undefined || this.#session.closed || this.#session.destroyed) {
      const session = (this.#session = this.#openSession());
      // Stop using the session before it closes, because Node's client refuses requests on a session that it is closing.
      setTimeout(() => (this.#session = undefined), 10_000);
      setTimeout(() => session.close(), 15_000);
    }
    return this.#session;
  }

  /** Sends bytes on a separate connection, and resolves when it is closed. */
  #sendRaw(text: string, act: (socket: TLSSocket) => void): Promise<string> {
    return new Promise((resolve) => {
      const socket = connectTls({
        port: this.#port,
        host: "localhost",
        ca: this.#ca,
        ALPNProtocols: ["http/1.1"],
      });
      socket.setTimeout(PATIENCE, () => socket.destroy(new Error("no end")));
      let failure = "";
      socket.on("error", ({ message }: Error) => (failure = message));
      socket.on("close", () => resolve(failure === "" ? "closed" : failure));
      socket.on("secureConnect", () => socket.write(text));
      act(socket);
      if (!socket.isPaused() && socket.listenerCount("readable") === 0) socket.resume();
    });
  }

  #openWebSocket(): Promise<string> {
    return new Promise((resolve) => {
      const socket = new WebSocket(`wss://localhost:${this.#port}/ws/echo`, { ca: this.#ca });
      socket.on("open", () => socket.send("hello")).on("message", () => socket.close(1000));
      socket.on("error", () => {}).on("close", (code) => resolve(String(code)));
    });
  }
}

type Http2Act = (
  stream: ReturnType<ClientHttp2Session["request"]>,
  session: ClientHttp2Session,
) => unknown;
