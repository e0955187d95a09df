/**
 * Thousands of requests, a third of which are aborted at random moments, leave no memory, timer, listener or connection
 * behind.
 */
import { type ChildProcess, spawn } from "node:child_process";
import { createInterface } from "node:readline";
import { fileURLToPath } from "node:url";
import { afterAll, afterEach, beforeAll, describe, expect, test } from "vitest";
import { connect, type Client } from "../helpers/client.ts";
import { startHost } from "../hosts/_host.ts";
import type { HostName } from "../hosts/_hosts.ts";
import { mebibyte } from "../helpers/large.ts";
import type { Call } from "../helpers/link.ts";
import { Upstream } from "../helpers/upstream.ts";
import { patience, until, within } from "../helpers/wait.ts";
import { chunk, lastChunk, request } from "../helpers/wire.ts";
import type { Holdings } from "../hosts/leaks.ts";

const upstream = new Upstream();
beforeAll(() => upstream.listen());
afterEach(() => upstream.reset());
afterAll(() => upstream.stop());

/** Creates a generator of random numbers that depend only on the seed, so that rounds are comparable. */
function createDice(seed: number): (sides: number) => number {
  let state = seed;
  return (sides) => {
    state = (Math.imul(state, 1_103_515_245) + 12_345) >>> 0;
    return (state >>> 8) % sides;
  };
}

/** Answers immediately with a small body; or, when the request's body has arrived, with a large body or in chunks. */
async function answer(call: Call): Promise<void> {
  const way = Number(call.target.slice(1)) % 4;
  if (way === 0) return call.reply(200, [], "small");
  await call.done;
  if (way === 1) return call.reply(200, [], Buffer.alloc(100_000));
  call.write("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n");
  for (let piece = 0; piece < way; piece++) {
    await new Promise(setImmediate);
    call.write(chunk("a piece"));
  }
  call.write(lastChunk);
}

const bodies = [undefined, "a body", "x".repeat(20_000)];

/** Sends one client's requests one after the other; the client disconnects during a third of them, and reconnects. */
async function useProxy(port: number, count: number, seed: number): Promise<void> {
  const dice = createDice(seed);
  let client: Client | undefined;
  for (let sent = 0; sent < count; sent++) {
    client ??= await connect(port);
    const body = bodies[dice(3)];
    client.send(request(body === undefined ? "GET" : "POST", `/${dice(1000)}`, [], body));
    if (dice(3) > 0) {
      expect((await client.read()).status).toBe(200);
      if (body === undefined || body.length < 1000) continue;
      // Connect again, because Deno's server closes a connection after a body of several packets.
      client.leave("FIN");
      client = undefined;
      continue;
    }
    for (let turns = dice(12); turns > 0; turns--) await new Promise(setImmediate);
    client.leave(dice(2) ? "FIN" : "RST");
    client = undefined;
  }
  client?.leave("FIN");
}

/** Runs all clients until they have disconnected and no upstream request is running. */
async function useAll(port: number, count: number, clients = 20): Promise<void> {
  upstream.script = answer;
  const share = Math.ceil(count / clients);
  await Promise.all(Array.from({ length: clients }, (_, seed) => useProxy(port, share, seed + 1)));
  await until(() => upstream.links.every((link) => link.isClosed || link.idle), "all at rest");
  upstream.calls.length = 0;
  upstream.links = upstream.links.filter((link) => !link.isClosed);
}

describe("on Node", () => {
  let child: ChildProcess;
  let lines: AsyncIterator<string>;

  const next = async <T>(): Promise<T> =>
    JSON.parse((await within(lines.next(), "an answer")).value as string) as T;

  async function measure(): Promise<Holdings> {
    child.stdin?.write("\n");
    return next<Holdings>();
  }

  /** Waits until no upstream connection is in use and no client is connected, and then measures. */
  async function settle(): Promise<Holdings> {
    let now = await measure();
    await expect
      .poll(async () => (now = await measure()).pool.inUse, { timeout: patience })
      .toBe(0);
    await expect
      .poll(async () => (now = await measure()).resources["TCPSocketWrap"], { timeout: patience })
      .toBe(undefined);
    return now;
  }

  test("10,000 requests leave no memory, timer, listener or connection behind", async () => {
    const file = fileURLToPath(new URL("../hosts/leaks.ts", import.meta.url));
    child = spawn(process.execPath, ["--expose-gc", file], {
      env: { ...process.env, UPSTREAM: upstream.url, NODE_OPTIONS: "" },
      stdio: ["pipe", "pipe", "inherit"],
    });
    try {
      lines = createInterface({ input: child.stdout as NodeJS.ReadableStream })[
        Symbol.asyncIterator
      ]();
      const { port } = await next<{ port: number }>();
      // Memory that was allocated at the start is freed only after some requests and garbage collections.
      for (let round = 0; round < 2; round++) {
        await useAll(port, 2000);
        await settle();
      }
      const before = await measure();
      await useAll(port, 10_000);
      const after = await settle();
      expect(after.resources).toEqual(before.resources);
      expect(after.listeners).toBe(before.listeners);
      expect(after.pool.waiting).toBe(0);
      // 0.5 MiB is 52 bytes per request.
      expect((after.heap - before.heap) / mebibyte, "MiB of growth").toBeLessThan(0.5);
    } finally {
      child.kill("SIGKILL");
    }
  }, 120_000);
});

describe.each<HostName>(["bun", "deno"])("on %s", (name) => {
  test("memory grows by less than 64 MiB during 4,000 requests", async () => {
    const host = await startHost(name, upstream.url);
    try {
      const port = host.port("default");
      await useAll(port, 4000);
      const before = host.rss();
      await useAll(port, 4000);
      expect((host.rss() - before) / mebibyte, "MiB of growth").toBeLessThan(64);
      // Only idle connections may be left, and there were never more than 40 requests at the same time.
      expect(upstream.links.length).toBeLessThanOrEqual(40);
      expect(host.complaints()).toBe("");
    } finally {
      await host.stop();
    }
  }, 120_000);
});
