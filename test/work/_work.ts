/** Starts a host that counts the work it does, sends requests to it, and reads the counts. */
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { Agent, get as httpGet, type IncomingMessage } from "node:http";
import { createInterface } from "node:readline";
import { connect, type Client } from "../helpers/client.ts";
import { hostFile, hostNode } from "../hosts/_node.ts";
import { Upstream } from "../helpers/upstream.ts";
import { pause, within } from "../helpers/wait.ts";
import { type Header, request } from "../helpers/wire.ts";

export const workHosts = ["node", "srvx", "h3", "hono"] as const;
export type WorkHost = (typeof workHosts)[number];

/** How the proxy read a request and built its response, as observed inside the handler. */
export interface Path {
  headers: string;
  body: string;
  address: string;
  response: string;
}

/** The work for a request, as a count for each kind of work. */
export type Work = Record<string, number>;

/** The files of src/ and runtimes/ whose functions a request calls, with the names of these functions. */
export type Files = Record<string, string[]>;

/** A line that the host prints: its measurements since the previous line. */
type Report = Work & { seen: Path[]; files: Files };

/** Makes an exchange on a client's connection. */
export type Ask = (client: Client, upstream: Upstream) => Promise<void>;

/** Returns an `Ask` that makes `times` exchanges at the same time, each on a separate connection. */
export function concurrently(times: number): Ask {
  const agent = new Agent({ keepAlive: true, maxSockets: times });
  return async ({ socket: { remotePort: port } }) => {
    const one = async (): Promise<void> => {
      const [response] = (await once(httpGet({ port, agent }), "response")) as [IncomingMessage];
      assert.equal(response.statusCode, 200);
      await once(response.resume(), "end");
    };
    await Promise.all(Array.from({ length: times }, one));
  };
}

/** Sends no body; the response body arrives together with its head. */
export const get: Ask = async (client) => {
  client.send(request("GET", "/a?b=c", [["Accept", "*/*"]]));
  assert.equal((await client.read()).status, 200);
};

/** Sends the fields of another proxy in front, with an IPv6 address. */
export const getForwarded: Ask = async (client) => {
  const fields: Header[] = [
    ["Accept", "*/*"],
    ["X-Forwarded-For", "2001:db8:1::7"],
    ["X-Forwarded-Proto", "https"],
    ["X-Forwarded-Host", "shop.example"],
  ];
  client.send(request("GET", "/a?b=c", fields));
  assert.equal((await client.read()).status, 200);
};

/** Sends a body of 1 KB, and expects it in the response. */
export const post: Ask = async (client) => {
  const body = "x".repeat(1024);
  client.send(request("POST", "/a", [["Content-Type", "application/json"]], body));
  assert.equal((await client.read()).text, body);
};

/** Requests a response of 64 KiB, which the upstream sends in one write. */
export const getLarge: Ask = async (client, upstream) => {
  const body = "x".repeat(65_536);
  upstream.script = (call) => call.reply(200, [["Content-Type", "text/plain"]], body);
  client.send(request("GET", "/", [["Accept", "*/*"]]));
  assert.equal((await client.read()).text, body);
};

/** Requests a response whose second half the upstream sends when the client has the head. */
export const getInPieces: Ask = async (client, upstream) => {
  const half = "x".repeat(100);
  const first = Promise.withResolvers<void>();
  upstream.script = async (call) => {
    call.write(`HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 200\r\n\r\n${half}`);
    await first.promise;
    call.write(half);
  };
  client.send(request("GET", "/", [["Accept", "*/*"]]));
  const head = await client.readHead();
  first.resolve();
  assert.equal((await client.readBody(head)).length, 200);
};

/** Sends a body whose second half the client sends when the first bytes have reached the upstream. */
export const postInPieces: Ask = async (client, upstream) => {
  const half = "x".repeat(50_000);
  const first = Promise.withResolvers<void>();
  upstream.script = async (call) => {
    call.onData = () => first.resolve();
    if (call.length > 0) first.resolve();
    await call.done;
    call.reply(200, [["Content-Type", "text/plain"]], `${call.length}`);
  };
  client.send(request("POST", "/", [["Content-Length", "100000"]]), half);
  await first.promise;
  client.send(half);
  assert.equal((await client.read()).text, "100000");
};

/**
 * What a host measures: how the proxy reads requests and builds responses (`paths`), the files whose functions a request
 * calls (`way`), web API objects, promises and timers (`counts`), system calls (`system`), bytes allocated (`heap`), bytes
 * that reach the old generation (`old`).
 */
type Mode = "paths" | "way" | "counts" | "system" | "heap" | "old";

/**
 * The flags of Node for each mode. `--no-opt` makes the counts of system calls and of bytes repeatable: optimized
 * code allocates less, and the time of optimization varies.
 */
const FLAGS: Readonly<Record<Mode, readonly string[]>> = {
  paths: [],
  way: [],
  counts: [],
  // Results of V8's threads would wake the event loop, with additional `write` and `read` calls.
  system: ["--single-threaded", "--no-opt"],
  // A garbage collection during the measurement would hide allocated bytes, so the young generation is made large.
  heap: ["--expose-gc", "--no-opt", "--min-semi-space-size=64", "--max-semi-space-size=64"],
  // A full collection during the measurement would hide bytes: the old generation is large enough to need none.
  old: [
    "--no-opt",
    "--min-semi-space-size=1",
    "--max-semi-space-size=1",
    "--initial-old-space-size=256",
  ],
};

/** The number of requests before a measurement, so that it does not include work that is done only once. */
const WARM_UP = 30;
const REQUESTS = 100;

export interface Worker {
  /** Warms up, makes the exchange `times` times in sequence on one connection, and returns the average work of one. */
  count(ask: Ask, times?: number): Promise<Work>;
  /** Makes the exchange once, and returns how the proxy read the request and built the response. */
  path(ask: Ask): Promise<Path>;
  /** Warms up, makes the exchange once, and returns the source files with a function that ran during it. */
  way(ask: Ask): Promise<Files>;
  stop(): Promise<void>;
}

/** The settings with which a host is started. */
export interface Setup {
  /** The proxy's target; by default the `Upstream` that exchanges get. */
  readonly target?: string;
  /** An option of the proxy, by its name, or `balance` for a target of several upstreams; by default none. */
  readonly part?: string;
}

/**
 * Starts a host.
 * @param transport the name, as for `hostFile`, of a module that exports a `transport`; by default the host uses
 * Fetchway's own client
 */
export async function startWork(
  host: WorkHost,
  mode: Mode,
  transport = "",
  { target, part = "" }: Setup = {},
): Promise<Worker> {
  const upstream = new Upstream();
  await upstream.listen();
  const child = spawn(hostNode, [...FLAGS[mode], hostFile("work/_host"), host, mode], {
    env: {
      ...process.env,
      UPSTREAM: target ?? upstream.url,
      PART: part,
      TRANSPORT: transport === "" ? "" : hostFile(transport),
      NODE_OPTIONS: "",
      NODE_V8_COVERAGE: "",
      // The coverage lacks functions that Node loads from its cache of compiled code.
      ...(mode === "way" && { NODE_DISABLE_COMPILE_CACHE: "1" }),
    },
    stdio: ["pipe", "pipe", "inherit"],
  });
  const exited = once(child, "exit");
  const lines = createInterface({ input: child.stdout })[Symbol.asyncIterator]();
  const line = async (): Promise<string> => {
    const { value } = (await within(lines.next(), "a line of the host")) as { value?: string };
    if (value === undefined) throw new Error("the host has ended");
    return value;
  };
  const port = Number(await line());
  const report = async (): Promise<Report> => {
    child.stdin.write("\n");
    return JSON.parse(await line()) as Report;
  };
  const client = await connect(port);
  return {
    async count(ask, times = REQUESTS) {
      await upstream.reset();
      for (let i = 0; i < WARM_UP; i++) await ask(client, upstream);
      await report();
      for (let i = 0; i < times; i++) await ask(client, upstream);
      const { seen: _, files: __, ...work } = await report();
      return Object.fromEntries(Object.entries(work).map(([kind, n]) => [kind, n / times]));
    },
    async path(ask) {
      await upstream.reset();
      await report();
      await ask(client, upstream);
      return (await report()).seen[0] as Path;
    },
    async way(ask) {
      await upstream.reset();
      for (let i = 0; i < WARM_UP; i++) await ask(client, upstream);
      // Work that follows the last response of the warm-up must not be counted: wait for its end.
      await pause(100);
      await report();
      await ask(client, upstream);
      return (await report()).files;
    },
    async stop() {
      client.leave("FIN");
      child.stdin.end();
      await within(exited, "the host's end").finally(() => child.kill("SIGKILL"));
      await upstream.stop();
    },
  };
}
