/** The benchmarks refuse to measure a contestant whose work differs from the work of the other contestants. */
import { readFileSync } from "node:fs";
import { mkdtemp, rm } from "node:fs/promises";
import type { RequestListener } from "node:http";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, afterEach, beforeAll, describe, expect, test } from "vitest";
import { contestants } from "../../bench/contestants.ts";
import { runLoad } from "../../bench/load.ts";
import { Program } from "../../bench/program.ts";
import { validate } from "../../bench/validate.ts";
import { type Workload, workloads } from "../../bench/workloads.ts";
import { findPort, serve } from "../helpers/serve.ts";

const root = join(import.meta.dirname, "../..");

describe("the validation and the measurement of contestants", () => {
  const [get, post] = workloads as [Workload, Workload];
  const closing: (() => void)[] = [];
  afterEach(() => closing.splice(0).forEach((close) => close()));

  async function start(handler: RequestListener): Promise<number> {
    const { port, close } = await serve("node", handler);
    closing.push(close);
    return port;
  }

  const headers = { "content-type": get.type, etag: '"bench"', "cache-control": "max-age=60" };

  test("a correct contestant is accepted and measured", async () => {
    const port = await start((_, res) => void res.writeHead(200, headers).end(get.answer));
    await validate(get, port);
    const { requests, duration, bytes, mean, p50, p99, errors } = await runLoad(get, port, 2, 2);
    expect(requests).toBeGreaterThan(0);
    expect(bytes / requests).toBeGreaterThan(get.answer.length);
    // No response can take longer than the whole run.
    expect(mean).toBeGreaterThan(0);
    expect(mean).toBeLessThan(1000 * duration);
    expect(p99).toBeGreaterThanOrEqual(p50);
    expect(errors).toBe(0);
  });

  test.each<[string, RequestListener, RegExp]>([
    ["another status", (_, res) => void res.writeHead(500, headers).end(get.answer), /status 500/],
    ["a lost field", (_, res) => void res.end(get.answer), /content-type: undefined/],
    ["a cut body", (_, res) => void res.writeHead(200, headers).end("no"), /a body of 2 bytes/],
    ["a broken connection", (_, res) => void res.destroy(), /hang up/],
  ])("the validation refuses a contestant with %s", async (_, handler, message) => {
    await expect(validate(get, await start(handler))).rejects.toThrow(message);
  });

  test.each([
    [204, "get-1k"],
    [302, "get-1k"],
    [502, "get-1k"],
    [204, "get-1m"],
  ])("a contestant that sometimes responds with %i to %s gets no figures", async (status, name) => {
    const workload = workloads.find((each) => each.name === name) as Workload;
    let count = 0;
    const port = await start((_, res) => {
      if (++count % 20 === 0) res.writeHead(status).end();
      else res.writeHead(200, headers).end(workload.answer);
    });
    const message = /^\d+ of \d+ requests failed|^\d+ bytes for \d+ responses/;
    await expect(runLoad(workload, port, 2, 2)).rejects.toThrow(message);
  });

  test("a contestant that sometimes drops a connection gets no figures", async () => {
    let count = 0;
    const port = await start((_, res) => {
      if (++count % 20 === 0) res.destroy();
      else res.writeHead(200, headers).end(get.answer);
    });
    await expect(runLoad(get, port, 2, 2)).rejects.toThrow(/^\d+ of \d+ requests failed/);
  });

  test("the POST workload sends 1024 bytes of JSON and expects the same body in the response", async () => {
    expect(post.body).toHaveLength(1024);
    expect(JSON.parse(String(post.body))).toBeTypeOf("object");
    const port = await start(
      (_, res) => void res.writeHead(200, { ...headers, "content-type": post.type }).end("{}"),
    );
    await expect(validate(post, port)).rejects.toThrow(/a body of 2 bytes/);
  });
});

/** The packages of the servers that a contestant starts by their kind. */
const SERVERS: Record<string, string[]> = {
  srvx: ["srvx"],
  h3: ["h3"],
  hono: ["hono", "@hono/node-server"],
};

test.each(contestants.filter(({ role }) => role !== "reference"))(
  "$title names the packages that it uses",
  ({ name, uses }) => {
    const source = readFileSync(join(root, `bench/contestants/${name}.ts`), "utf8");
    const found = source.matchAll(/(?:from |\)\()"(?!node:|[.#])((?:@[^/"]+\/)?[^/"]+)/g);
    const imported = new Set(Array.from(found, ([, each]) => each));
    for (const [, kind = ""] of source.matchAll(/\bstart\("(\w+)"/g)) {
      for (const each of SERVERS[kind] ?? []) imported.add(each);
    }
    // The project's own undici integration imports undici.
    if (source.includes("/runtimes/undici.ts")) imported.add("undici");
    const runtime = /^(bun|deno|workerd)/.exec(name)?.[0];
    expect(new Set(uses)).toEqual(runtime === undefined ? imported : new Set([runtime]));
  },
);

/** Sends a request that the upstream drops. @returns whether a load generator can see that it failed */
async function isFailureSeen(port: number, init: RequestInit): Promise<boolean> {
  const signal = AbortSignal.timeout(10_000);
  try {
    return (await fetch(`http://127.0.0.1:${port}/drop`, { ...init, signal })).status >= 500;
  } catch (error) {
    // workerd closes the connection if its handler throws.
    return (error as Error).name === "TypeError";
  }
}

describe("the contestants of the benchmarks", () => {
  let directory: string;
  let upstream: Program;
  beforeAll(async () => {
    directory = await mkdtemp(join(tmpdir(), "fetchway-bench-"));
    const port = await findPort();
    upstream = await Program.start([process.execPath, join(root, "bench/target.ts")], port);
  });
  afterAll(async () => {
    await upstream.stop();
    await rm(directory, { recursive: true });
  });

  test.each(contestants.filter(({ role }) => role !== "reference"))(
    "$title passes the validation, and answers with an error or closes the connection if the upstream drops a request",
    async (contestant) => {
      const target = `http://127.0.0.1:${upstream.port}`;
      const port = await findPort();
      const place = { port, target, directory };
      const program = await Program.start(await contestant.command(place), port, {
        TARGET: target,
      });
      try {
        for (const workload of workloads) await validate(workload, port);
        expect(await isFailureSeen(port, {})).toBe(true);
        expect(await isFailureSeen(port, { method: "POST", body: "body" })).toBe(true);
      } finally {
        await program.stop();
      }
      expect(program.alive).toBe(false);
    },
  );
});
