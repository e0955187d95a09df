/**
 * Clients that check every byte of the responses. Like browsers, they repeat only requests that a GOAWAY has refused
 * (RFC 9113 §8.7).
 */
import { Agent, request } from "node:http";
import { type ClientHttp2Session, connect, constants } from "node:http2";
import { WebSocket } from "ws";
import { pause, within } from "../helpers/wait.ts";
import { EVENT_INTERVAL, eventsUpTo } from "./_events.ts";

/** The number of events of a stream, and of messages of a WebSocket. Either lasts for about 8 s. */
const LENGTH = 80;
const UPLOAD = "0123456789".repeat(1000);

type Ask = (path: string, body?: string) => Promise<string>;

export interface Outcome {
  succeeded: number;
  /** The number of requests that were repeated because a GOAWAY had refused them. */
  repeated: number;
  /** The number of failures by their message. */
  readonly failures: Map<string, number>;
}

export class Load implements Disposable {
  readonly outcomes: Map<string, Outcome> = new Map();
  readonly #origin: string;
  readonly #agents: Agent[] = [];
  readonly #sessions: Set<ClientHttp2Session> = new Set();
  readonly #clients: Promise<void>[] = [];
  #isOver = false;

  constructor(port: number) {
    this.#origin = `http://127.0.0.1:${port}`;
  }

  start(): void {
    this.#run("HTTP/1.1 requests", 16, 20, () => exchange(this.#http1(true)));
    this.#run("HTTP/1.1 requests, each on a new connection", 8, 40, () =>
      exchange(this.#http1(false)),
    );
    this.#run("HTTP/1.1 requests of clients that pause", 16, 1500, () =>
      exchange(this.#http1(true)),
    );
    this.#run("HTTP/2 requests", 16, 20, (outcome) => exchange(this.#http2(outcome)));
    this.#run("event streams over HTTP/1.1", 8, 20, () => readEvents(this.#http1(true)));
    this.#run("event streams over HTTP/2", 8, 20, (outcome) => readEvents(this.#http2(outcome)));
    this.#run("WebSockets", 8, 20, () => () => converse(this.#origin));
  }

  /** Stops the clients when their current requests are over. */
  async finish(): Promise<void> {
    this.#isOver = true;
    await Promise.all(this.#clients);
  }

  [Symbol.dispose](): void {
    this.#isOver = true;
    for (const each of [...this.#agents, ...this.#sessions]) each.destroy();
  }

  /**
   * Starts clients, each of which repeats its exchange until `finish` is called.
   * @param gap mean number of milliseconds between two exchanges of a client
   */
  #run(
    kind: string,
    clients: number,
    gap: number,
    open: (outcome: Outcome) => () => Promise<void>,
  ): void {
    const outcome: Outcome = { succeeded: 0, repeated: 0, failures: new Map() };
    this.outcomes.set(kind, outcome);
    const live = async (): Promise<void> => {
      const act = open(outcome);
      while (!this.#isOver) {
        await within(act(), "an answer").then(
          () => outcome.succeeded++,
          (error: unknown) => {
            const text = String(error);
            outcome.failures.set(text, (outcome.failures.get(text) ?? 0) + 1);
          },
        );
        await pause(gap * (0.5 + Math.random()));
      }
    };
    for (let i = 0; i < clients; i++) this.#clients.push(live());
  }

  #http1(keepAlive: boolean): Ask {
    const agent = new Agent({ keepAlive, maxSockets: 1 });
    this.#agents.push(agent);
    return (path, body) =>
      new Promise((resolve, reject) => {
        const method = body === undefined ? "GET" : "POST";
        const sent = request(this.#origin + path, { agent, method }, (response) => {
          let text = response.statusCode === 200 ? "" : `${response.statusCode} `;
          response.setEncoding("utf8").on("data", (data: string) => (text += data));
          response.on("error", reject).on("end", () => resolve(text));
        });
        sent.on("error", reject).end(body);
      });
  }

  #http2(outcome: Outcome): Ask {
    let session: ClientHttp2Session | undefined;
    const open = (): ClientHttp2Session => {
      const opened = connect(this.#origin);
      this.#sessions.add(opened);
      // After GOAWAY, send requests on a new session, as browsers do.
      const leave = (): void => void (session === opened && (session = undefined));
      opened.on("error", leave).on("goaway", leave);
      opened.on("close", () => (leave(), this.#sessions.delete(opened)));
      return opened;
    };
    const ask: Ask = (path, body) =>
      new Promise((resolve, reject) => {
        session ??= open();
        const stream = session.request({
          ":path": path,
          ":method": body === undefined ? "GET" : "POST",
        });
        let text = "";
        stream.on("response", ({ ":status": status }) => status !== 200 && (text = `${status} `));
        stream.setEncoding("utf8").on("data", (data: string) => (text += data));
        stream.on("error", () => {}).on("end", () => resolve(text));
        stream.on("close", () => {
          if (stream.rstCode !== constants.NGHTTP2_REFUSED_STREAM) {
            reject(new Error(`closed with ${stream.rstCode}`));
            return;
          }
          outcome.repeated++;
          session = undefined;
          resolve(ask(path, body));
        });
        stream.end(body);
      });
    return ask;
  }
}

/** Returns a function that sends a GET and a POST alternately. */
function exchange(ask: Ask): () => Promise<void> {
  let count = 0;
  return async () => {
    const number = count++;
    if (number % 2 === 0) expectSame(await ask(`/api/${number}`), `/${number}`);
    else expectSame(await ask("/upload", UPLOAD), UPLOAD);
  };
}

function readEvents(ask: Ask): () => Promise<void> {
  return async () => expectSame(await ask(`/events?count=${LENGTH}`), eventsUpTo(LENGTH));
}

/** Opens a WebSocket, and sends each message after the previous one has come back. */
function converse(origin: string): Promise<void> {
  return new Promise((resolve, reject) => {
    const socket = new WebSocket(origin.replace("http:", "ws:"));
    let count = 0;
    const say = (): void => socket.send(`message ${count}`);
    socket.on("open", say).on("error", reject);
    socket.on("message", (data: Buffer) => {
      if (data.toString() !== `message ${count}`)
        reject(new Error(`not ${count}: ${data.toString()}`));
      if (++count === LENGTH) socket.close(1000);
      else setTimeout(say, EVENT_INTERVAL);
    });
    socket.on("close", (code) => {
      if (count === LENGTH && code === 1000) resolve();
      else reject(new Error(`closed with ${code}`));
    });
  });
}

function expectSame(actual: string, expected: string): void {
  if (actual === expected) return;
  const status = /^\d{3} /.test(actual) ? actual.slice(0, 60) : `${actual.length} bytes`;
  throw new Error(`another response: ${status}`);
}
