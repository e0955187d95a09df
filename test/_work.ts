/** Starts a host whose work is counted, asks it for something, and asks what it has done for that. */
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { createInterface } from "node:readline";
import { connect, type Client } from "./_client.ts";
import { hostFile, hostNode } from "./_node.ts";
import { Upstream } from "./_upstream.ts";
import { pause, within } from "./_wait.ts";
import { request } from "./_wire.ts";

export const workHosts = ["node", "srvx", "h3", "hono"] as const;
export type WorkHost = (typeof workHosts)[number];

/** How one request was taken, seen from within the handler. */
export interface Path {
  headers: string;
  body: string;
  address: string;
  response: string;
}

/** What was done for one request, by kind. */
export type Work = Record<string, number>;

/** Files of src/ and runtimes/ with the names of their functions that one request calls. */
export type Files = Record<string, string[]>;

/** One line of the host: what it has measured since the last. */
type Report = Work & { seen: Path[]; files: Files };

/** One exchange on a client's connection. */
export type Ask = (client: Client, upstream: Upstream) => Promise<void>;

/** No body, and an answer that has come as a whole with its head. */
export const get: Ask = async (client) => {
  client.send(request("GET", "/a?b=c", [["Accept", "*/*"]]));
  assert.equal((await client.read()).status, 200);
};

/** 1 KB, and the same back. */
export const post: Ask = async (client) => {
  const body = "x".repeat(1024);
  client.send(request("POST", "/a", [["Content-Type", "application/json"]], body));
  assert.equal((await client.read()).text, body);
};

/** An answer that is all here, and takes two reads. */
export const getInTwoReads: Ask = async (client, upstream) => {
  const body = "x".repeat(65_536);
  upstream.script = (call) => call.reply(200, [["Content-Type", "text/plain"]], body);
  client.send(request("GET", "/", [["Accept", "*/*"]]));
  assert.equal((await client.read()).text, body);
};

/** An answer whose second half comes when the first has reached the client. */
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

/** A body whose second half comes when the first has reached the upstream. */
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
 * What a host measures: how the proxy reads requests and builds responses (`paths`), the files that a request passes
 * (`way`), promises and timers (`counts`), system calls (`system`), bytes allocated (`heap`), bytes that reach
 * the old generation (`old`).
 */
type Mode = "paths" | "way" | "counts" | "system" | "heap" | "old";

/** Optimized code allocates less, and when it is optimized is chance. */
const FLAGS: Readonly<Record<Mode, readonly string[]>> = {
  paths: [],
  way: [],
  counts: [],
  // Without threads of V8, whose results wake the event loop by a `write` and a `read`.
  system: ["--single-threaded", "--no-opt"],
  // Collected is not allocated.
  heap: ["--expose-gc", "--no-opt", "--min-semi-space-size=64", "--max-semi-space-size=64"],
  old: ["--no-opt", "--min-semi-space-size=1", "--max-semi-space-size=1"],
};

/** Enough that nothing is done for the first time any more. */
const WARM_UP = 30;
const REQUESTS = 100;

export interface Worker {
  /** Asks so often, one after the other on one connection. */
  count(ask: Ask, times?: number): Promise<Work>;
  /** Asks once, and says which way it went. */
  path(ask: Ask): Promise<Path>;
  /** Sends one request after warm-up, and returns the files that it passes. */
  way(ask: Ask): Promise<Files>;
  stop(): Promise<void>;
}

/** @param transport name of a module with a `transport` to use, as `hostFile` takes it; Node's own if left out */
export async function startWork(host: WorkHost, mode: Mode, transport = ""): Promise<Worker> {
  const upstream = new Upstream();
  await upstream.listen();
  const child = spawn(hostNode, [...FLAGS[mode], hostFile("work/host"), host, mode], {
    env: {
      ...process.env,
      UPSTREAM: upstream.url,
      TRANSPORT: transport === "" ? "" : hostFile(transport),
      NODE_OPTIONS: "",
      NODE_V8_COVERAGE: "",
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
      // What the last request of the warm-up still does after its response belongs to it.
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
