/** The option `wait` with HTTP/2 upstreams on Node, Bun and Deno: requests that an upstream has not processed. */
import { randomBytes } from "node:crypto";
import { createServer, type Http2Server, type ServerHttp2Session } from "node:http2";
import { afterAll, afterEach, beforeAll, describe, expect, test } from "vitest";
import {
  DATA,
  frame,
  GOAWAY,
  type RawConnection,
  RawUpstream,
  uint32,
  wholeResponse,
} from "../../../helpers/frames.ts";
import { listen } from "../../../helpers/serve.ts";
import { pause, until, within } from "../../../helpers/wait.ts";
import { askFor, type Front, runtimes, startFront } from "./_front.ts";

const closing: (() => unknown)[] = [];
afterEach(async () => {
  for (const close of closing.splice(0).toReversed()) await close();
});

/** An HTTP/2 server that keeps the body of each request, and all bodies of a request that arrives more than once. */
class Graceful {
  /** The complete bodies, by the name of the request. */
  readonly received: Map<string, Buffer[]> = new Map();
  /** The names of the requests whose beginning has arrived. */
  readonly begun: Set<string> = new Set();
  readonly #sessions: Set<ServerHttp2Session> = new Set();
  #server: Http2Server | undefined;
  port = 0;

  async start(): Promise<void> {
    const server = createServer((req, res) => {
      const id = String(req.headers["x-id"]);
      this.begun.add(id);
      const chunks: Buffer[] = [];
      req.on("data", (chunk: Buffer) => chunks.push(chunk));
      req.on("end", () => {
        this.received.set(id, [...(this.received.get(id) ?? []), Buffer.concat(chunks)]);
        res.end(String(req.headers["content-length"]));
      });
    });
    server.on("session", (session) => {
      this.#sessions.add(session);
      session.on("close", () => this.#sessions.delete(session));
    });
    this.port = await listen(server, this.port);
    this.#server = server;
  }

  /** Refuses new connections, and closes each connection when its requests are finished, after a GOAWAY. */
  stop(): void {
    this.#server?.close();
    for (const session of this.#sessions) session.close();
  }
}

describe.each(runtimes)("on %s", (runtime) => {
  let front: Front;
  beforeAll(async () => {
    front = await startFront(
      runtime,
      { http2: true },
      { wait: 15_000 },
      { "/without": { wait: 0 } },
    );
  });
  afterAll(() => front.close());

  test("a POST whose stream GOAWAY excludes is sent again with its whole body, but not without `wait`", async () => {
    const upstream = new RawUpstream();
    closing.push(() => upstream.close());
    const url = await upstream.listen();
    const body = "x".repeat(20_000);
    const lengthOf = ({ frames }: RawConnection): number =>
      frames.reduce((sum, { type, payload }) => sum + (type === DATA ? payload.byteLength : 0), 0);
    upstream.script = (connection, id) => {
      const isLast = upstream.requests % 2 === 0;
      void until(() => lengthOf(connection) === body.length, "the body").then(() =>
        connection.send(isLast ? wholeResponse(id) : frame(GOAWAY, 0, 0, uint32(0, 0))),
      );
    };
    const ask = async (path: string): Promise<number> => {
      const client = await front.connect();
      const { length } = upstream.connections;
      const fields = [`Content-Length: ${body.length}`];
      client.send(askFor(url, "POST", fields, path), body.slice(1));
      // Send the last byte only after the request has been sent, so that the proxy never has the whole body in memory.
      await until(() => upstream.connections[length]?.has(DATA) === true, "the beginning");
      client.send("x");
      return (await client.read()).status;
    };
    expect([await ask("/"), upstream.requests]).toEqual([200, 2]);
    expect([await ask("/without"), upstream.requests]).toEqual([502, 3]);
  });

  test("a POST that GOAWAY excludes is sent again although the client has sent only a part of its body", async () => {
    const upstream = new RawUpstream();
    closing.push(() => upstream.close());
    const url = await upstream.listen();
    const body = randomBytes(60_000);
    const dataOf = ({ frames }: RawConnection): Buffer =>
      Buffer.concat(frames.map(({ type, payload }) => (type === DATA ? payload : Buffer.alloc(0))));
    const read = 20_000;
    upstream.script = (connection, id) => {
      const [length, end] =
        upstream.requests < 3
          ? [read, frame(GOAWAY, 0, 0, uint32(0, 0))]
          : [60_000, wholeResponse(id)];
      void until(() => dataOf(connection).length === length, "the body").then(() =>
        connection.send(end),
      );
    };
    const client = await front.connect();
    const fields = [`Content-Length: ${body.length}`];
    client.send(askFor(url, "POST", fields), body.subarray(0, read));
    await until(() => upstream.requests === 3, "the third attempt");
    const last = upstream.connections.at(-1) as RawConnection;
    await until(() => dataOf(last).length === read, "what was read");
    client.send(body.subarray(read));
    expect((await client.read()).status).toBe(200);
    expect(dataOf(last).equals(body)).toBe(true);
  });

  test("during graceful restarts, each upload of which the proxy has read at most 128 KiB arrives exactly once", async () => {
    const upstream = new Graceful();
    await upstream.start();
    closing.push(() => upstream.stop());
    const url = `http://127.0.0.1:${upstream.port}`;
    const wrong: string[] = [];
    let answered = 0;
    let isOver = false;
    const work = async (worker: number): Promise<void> => {
      for (let i = 0; !isOver; i++) {
        // Use a new connection for each request: Deno's server closes a connection after a body of several packets.
        const client = await front.connect();
        const body = randomBytes([4_000, 60_000, 100_000, 400_000][i % 4] as number);
        const id = `${worker}/${i}`;
        const head = askFor(url, "POST", [`X-Id: ${id}`, `Content-Length: ${body.length}`]);
        client.send(head, body.subarray(0, 60_000));
        const answer = client.read();
        if (body.length > 60_000) {
          const sendRest = async (): Promise<void> => {
            await until(() => upstream.begun.has(id), `the beginning of ${id}`);
            client.send(body.subarray(60_000));
          };
          await Promise.race([sendRest(), answer]);
        }
        const { status, text } = await answer;
        const received = upstream.received.get(id) ?? [];
        const isRight = text === String(body.length) && received[0]?.equals(body) === true;
        if (status !== 200 || !isRight || received.length !== 1) {
          wrong.push(`${id}: ${status} ${text}, received ${received.length} times`);
        }
        upstream.received.delete(id);
        client.leave("FIN");
        answered++;
      }
    };
    const workers = Array.from({ length: 8 }, (_, worker) => work(worker));
    for (let restarts = 0; restarts <= 5; restarts++) {
      const goal = answered + 50;
      const reachGoal = async (): Promise<void> => {
        while (answered < goal) await pause(2);
      };
      await within(reachGoal(), "50 answers");
      if (restarts === 5) break;
      upstream.stop();
      await upstream.start();
    }
    isOver = true;
    await Promise.all(workers);
    expect(wrong).toEqual([]);
  });
});
