/** The option `wait` with HTTP/2 upstreams on Node, Bun and Deno: requests that an upstream has not processed. */
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

/** An HTTP/2 server that counts how often each path was received. */
class Graceful {
  readonly received: Map<string, number> = new Map();
  readonly #sessions: Set<ServerHttp2Session> = new Set();
  #server: Http2Server | undefined;
  port = 0;

  async start(): Promise<void> {
    const server = createServer((req, res) => {
      let length = 0;
      req.on("data", (chunk: Buffer) => (length += chunk.byteLength));
      req.on("end", () => {
        const id = String(req.headers["x-id"]);
        this.received.set(id, (this.received.get(id) ?? 0) + 1);
        res.end(String(length));
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

describe.each(runtimes)("%s", (runtime) => {
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

  test("a POST that GOAWAY excludes is sent again, with its whole body", async () => {
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
      // The end of the body arrives when the request has been sent, so that the body is not in memory anyway.
      await until(() => upstream.connections[length]?.has(DATA) === true, "the beginning");
      client.send("x");
      return (await client.read()).status;
    };
    expect([await ask("/"), upstream.requests]).toEqual([200, 2]);
    expect([await ask("/without"), upstream.requests]).toEqual([502, 3]);
  });

  test("no upload of up to 64 KiB fails during graceful restarts, and none arrives twice", async () => {
    const upstream = new Graceful();
    await upstream.start();
    closing.push(() => upstream.stop());
    const url = `http://127.0.0.1:${upstream.port}`;
    const wrong: string[] = [];
    let answered = 0;
    let isOver = false;
    const work = async (worker: number): Promise<void> => {
      for (let i = 0; !isOver; i++) {
        // Deno's server closes a connection after a body of several packets.
        const client = await front.connect();
        const body = "x".repeat(i % 2 === 0 ? 4_000 : 60_000);
        const id = `${worker}/${i}`;
        client.send(askFor(url, "POST", [`X-Id: ${id}`, `Content-Length: ${body.length}`]), body);
        const { status, text } = await client.read();
        const times = upstream.received.get(id) ?? 0;
        if (status !== 200 || text !== String(body.length) || times !== 1) {
          wrong.push(`${id}: ${status} ${text}, received ${times} times`);
        }
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
