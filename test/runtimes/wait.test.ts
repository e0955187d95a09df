/** The option `wait` on Node, Bun and Deno: upstreams that are away for a moment, and come back. */
import { once } from "node:events";
import { createServer, type IncomingMessage, type Server, type ServerResponse } from "node:http";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, describe, expect, test } from "vitest";
import type { ProgramOptions } from "./_wait.program.ts";
import { type Client, connect } from "../helpers/client.ts";
import { NameServer } from "../helpers/dns.ts";
import { mebibyte } from "../helpers/large.ts";
import { EVALUATE, startProgram } from "../helpers/program.ts";
import { findPort } from "../helpers/serve.ts";
import { pause, within } from "../helpers/wait.ts";
import { request } from "../helpers/wire.ts";

const PROGRAM = join(import.meta.dirname, "_wait.program.ts");
const large = new Uint8Array(mebibyte);
const ends: (() => unknown)[] = [];
afterEach(async () => {
  for (const end of ends.splice(0).toReversed()) await end();
});

/** An upstream that can go away and come back at the same address. It counts how often each path was received. */
class Restarting {
  readonly received: Map<string, number> = new Map();
  readonly address: string | number;
  #server: Server | undefined;

  constructor(address: string | number) {
    this.address = address;
  }

  /** Comes back, or starts. */
  async start(): Promise<void> {
    const server = createServer((req, res) => void this.#answer(req, res).catch(() => {}));
    if (typeof this.address === "string") server.listen(this.address);
    else server.listen(this.address, "127.0.0.1");
    await once(server, "listening");
    this.#server = server;
  }

  /** Ends its connections, and refuses new ones. */
  stop(): void {
    this.#server?.close();
    this.#server?.closeAllConnections();
    this.#server = undefined;
  }

  async #answer(req: IncomingMessage, res: ServerResponse): Promise<void> {
    const { url = "" } = req;
    this.received.set(url, (this.received.get(url) ?? 0) + 1);
    let length = 0;
    for await (const chunk of req) length += (chunk as Buffer).byteLength;
    res.end(`${req.method} ${length}`);
  }
}

async function startUpstream(): Promise<Restarting> {
  const upstream = new Restarting(await findPort());
  await upstream.start();
  ends.push(() => upstream.stop());
  return upstream;
}

describe.each(Object.keys(EVALUATE))("on %s", (runtime) => {
  interface Front {
    readonly port: number;
    send(method: string, path: string, body?: string | Uint8Array): Promise<Client>;
    /** Returns the answer of one of the program's own paths, such as `/held`. */
    ask(path: string): Promise<string>;
    /** Waits until the answer of one of the program's own paths matches. */
    becomes(path: string, pattern: RegExp): Promise<void>;
    /** Waits until this number of requests waits for the upstream. */
    held(count: number): Promise<void>;
  }

  async function start(options: ProgramOptions): Promise<Front> {
    const args = [...(runtime === "deno" ? ["run", "-A"] : []), PROGRAM, JSON.stringify(options)];
    const program = startProgram(runtime, args);
    ends.push(() => program[Symbol.asyncDispose]());
    const port = Number((await program.printed(/port=(\d+)/))[1]);
    const send: Front["send"] = async (method, path, body) => {
      const client = await connect(port);
      ends.push(() => client.leave("FIN"));
      client.send(request(method, path, [], body));
      return client;
    };
    const ask: Front["ask"] = async (path) => (await (await send("GET", path)).read()).text;
    const becomes: Front["becomes"] = async (path, pattern) => {
      const poll = async (): Promise<void> => {
        while (!pattern.test(await ask(path))) await pause(5);
      };
      await within(poll(), `${path} to be ${pattern}`);
    };
    const held: Front["held"] = (count) => becomes("/held", new RegExp(`^${count}$`));
    return { port, send, ask, becomes, held };
  }

  test("GET and POST requests wait, and arrive once, with their whole bodies", async () => {
    const upstream = await startUpstream();
    const front = await start({ target: `http://127.0.0.1:${upstream.address}`, wait: 15_000 });
    expect((await (await front.send("GET", "/first")).read()).status).toBe(200);
    upstream.stop();
    const bodies = [undefined, "short", large, large];
    const clients = await Promise.all(
      bodies.map((body, i) => front.send(body === undefined ? "GET" : "POST", `/${i}`, body)),
    );
    await front.held(4);
    await upstream.start();
    const answers = await Promise.all(clients.map((client) => client.read()));
    expect(answers.map(({ status, text }) => `${status} ${text}`)).toEqual([
      "200 GET 0",
      "200 POST 5",
      `200 POST ${mebibyte}`,
      `200 POST ${mebibyte}`,
    ]);
    expect([...upstream.received.values()]).toEqual([1, 1, 1, 1, 1]);
    expect(await front.ask("/held")).toBe("0");
  });

  test("requests wait for a Unix domain socket that does not exist yet", async () => {
    const folder = await mkdtemp(join(tmpdir(), "fetchway-"));
    ends.push(() => rm(folder, { recursive: true }));
    const socketPath = join(folder, "app.sock");
    const upstream = new Restarting(socketPath);
    ends.push(() => upstream.stop());
    const front = await start({ target: `unix:${socketPath}`, wait: 15_000 });
    const client = await front.send("POST", "/", "x");
    await front.held(1);
    await upstream.start();
    expect((await client.read()).text).toBe("POST 1");
  });

  test("a request waits for a host name that was found before, but not for a name that was never found", async () => {
    const upstream = await startUpstream();
    await using names = await new NameServer().listen();
    names.zones = { "app.test": { addresses: ["127.0.0.1"], ttl: 0 } };
    const pool = { keepAlive: false, dns: { servers: [names.address] } };
    const [front, never] = await Promise.all(
      ["app.test", "never.test"].map((name) =>
        start({ target: `http://${name}:${upstream.address}`, pool, wait: 15_000 }),
      ),
    );
    expect((await (await front?.send("GET", "/"))?.read())?.status).toBe(200);
    expect((await (await never?.send("GET", "/"))?.read())?.status).toBe(502);
    const { zones } = names;
    names.zones = {};
    const client = await front?.send("POST", "/", "x");
    await front?.held(1);
    names.zones = zones;
    expect((await client?.read())?.text).toBe("POST 1");
  });

  test("at the end of `wait`, the client gets 503 with Retry-After", async () => {
    const upstream = await startUpstream();
    const front = await start({ target: `http://127.0.0.1:${upstream.address}`, wait: 200 });
    upstream.stop();
    const clients = [await front.send("GET", "/"), await front.send("POST", "/", large)];
    for (const client of clients) {
      const { status, text, ...head } = await client.read();
      expect([status, text]).toEqual([503, "Service Unavailable: destination_unavailable\n"]);
      expect(head.headers.map(([name, value]) => `${name}: ${value}`.toLowerCase())).toContain(
        "retry-after: 1",
      );
    }
    await upstream.start();
    expect((await (await front.send("GET", "/")).read()).status).toBe(200);
  });

  test("a request that waits is removed and not sent if its client disconnects", async () => {
    const upstream = await startUpstream();
    const front = await start({ target: `http://127.0.0.1:${upstream.address}`, wait: 15_000 });
    upstream.stop();
    // Deno does not notice that a client disconnects while a body is unread, so send no body there.
    const gone = await (runtime === "deno"
      ? front.send("GET", "/gone")
      : front.send("POST", "/gone", "x"));
    const stays = await front.send("GET", "/stays");
    await front.held(2);
    gone.leave("FIN");
    await front.held(1);
    await upstream.start();
    expect((await stays.read()).status).toBe(200);
    expect([...upstream.received.keys()]).toEqual(["/stays"]);
  });

  test("requests wait while all of several upstreams refuse, are ejected, or are down", async () => {
    const upstreams = [await startUpstream(), await startUpstream()] as const;
    const target = upstreams.map(({ address }) => `http://127.0.0.1:${address}`);
    const check = { path: "/", interval: 50, healthyThreshold: 1, unhealthyThreshold: 1 };
    for (const balancing of [{ check }, {}]) {
      const front = await start({ target, balancing, wait: 15_000 });
      expect((await (await front.send("GET", "/")).read()).status).toBe(200);
      for (const each of upstreams) each.stop();
      if ("check" in balancing) await front.becomes("/upstreams", /^down 0,down 0$/);
      const clients = await Promise.all([1, 2, 3].map((i) => front.send("POST", `/${i}`, "x")));
      await front.held(3);
      await front.becomes("/upstreams", / 0,.* 0$/);
      await upstreams[1].start();
      for (const client of clients) expect((await client.read()).text).toBe("POST 1");
      await front.becomes("/upstreams", / 0,.* 0$/);
      await upstreams[0].start();
    }
    const times = [1, 2, 3].map((i) => upstreams[1].received.get(`/${i}`));
    expect(times).toEqual([2, 2, 2]);
  });

  test.each(["/close", "/destroy"])("%s: waiting requests get 503", async (path) => {
    const upstream = await startUpstream();
    const front = await start({ target: `http://127.0.0.1:${upstream.address}`, wait: 15_000 });
    upstream.stop();
    const client = await front.send("POST", "/", "x");
    await front.held(1);
    await front.ask(path);
    expect((await client.read()).status).toBe(503);
    expect(await front.ask("/held")).toBe("0");
  });

  test("while the upstream restarts under load, each GET is answered, and no POST arrives twice", async () => {
    const upstream = await startUpstream();
    const front = await start({ target: `http://127.0.0.1:${upstream.address}`, wait: 15_000 });
    const wrong: string[] = [];
    let isOver = false;
    let answered = 0;
    /** Sends requests one after the other on one connection. */
    const work = async (worker: number): Promise<void> => {
      const client = await connect(front.port);
      ends.push(() => client.leave("FIN"));
      for (let i = 0; !isOver; i++) {
        const method = i % 2 === 0 ? "GET" : "POST";
        const path = `/${worker}/${i}`;
        client.send(request(method, path, [], method === "POST" ? "body" : undefined));
        const { status } = await client.read();
        const times = upstream.received.get(path) ?? 0;
        // A POST on a reused connection that breaks may have been processed, so it is not sent again.
        const isRight =
          method === "GET"
            ? status === 200
            : (status === 200 && times === 1) || (status === 502 && times <= 1);
        if (!isRight) wrong.push(`${method} ${path}: ${status}, received ${times} times`);
        answered++;
      }
    };
    const workers = Array.from({ length: 8 }, (_, worker) => work(worker));
    const more = async (count: number): Promise<void> => {
      const goal = answered + count;
      while (answered < goal) await pause(2);
    };
    for (let restarts = 0; restarts < 3; restarts++) {
      await within(more(100), "100 answers");
      upstream.stop();
      // Each of the 8 workers has a waiting request: if its POST has broken off, the request after that POST.
      await front.held(8);
      await upstream.start();
    }
    await within(more(100), "100 answers");
    isOver = true;
    await Promise.all(workers);
    expect(wrong).toEqual([]);
    expect(await front.ask("/held")).toBe("0");
  });
});
