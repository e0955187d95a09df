/** The contestants of the scoreboard start and forward requests, in their plain configuration and with each option that hardens it. */
import { once } from "node:events";
import { mkdtemp, rm } from "node:fs/promises";
import { createServer, type Server } from "node:http";
import type { AddressInfo } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { contestants } from "../compare/contestants/_all.ts";
import { versionOf } from "../compare/contestants/_launch.ts";

// The contestants in Go are left out, because compiling them takes minutes.
const variants = contestants
  .filter(({ source }) => source !== "go")
  .flatMap((contestant) =>
    [undefined, ...Object.keys(contestant.hardenings ?? {})].map((hardening) => ({
      contestant,
      hardening,
      title: hardening ? `${contestant.name} with ${hardening}` : contestant.name,
    })),
  );

test("no two contestants have the same name", () => {
  expect(new Set(contestants.map(({ name }) => name)).size).toBe(contestants.length);
});

test("the error for a missing program says how to install it", () => {
  expect(() => versionOf(["no-such-program", "-v"], "apt-get install it")).toThrow(
    "no-such-program is missing: apt-get install it",
  );
});

describe("a contestant forwards a request with a body, and ends", () => {
  let upstream: Server;
  beforeAll(async () => {
    upstream = createServer((req, res) => {
      res.write(`${req.method} ${req.url} `);
      req.pipe(res);
    }).listen(0, "127.0.0.1");
    await once(upstream, "listening");
  });
  afterAll(() => void upstream.close());

  test.for(variants)("$title", async ({ contestant, hardening }, { skip }) => {
    const folder = await mkdtemp(join(tmpdir(), "fetchway-compare-"));
    const { port } = upstream.address() as AddressInfo;
    const running = await contestant
      .start({ upstream: port, folder, ...(hardening && { hardening }) })
      .catch((error: unknown) => {
        const { message } = error as Error;
        if (contestant.source === "apt") skip(message.includes("is missing"), message);
        throw error;
      });
    try {
      const answer = await fetch(`http://127.0.0.1:${running.port}/path?query`, {
        method: "POST",
        body: "body",
      });
      expect(await answer.text()).toBe("POST /path?query body");
      expect(running.version).toMatch(/\d\.\d/);
    } finally {
      await running.stop();
      await rm(folder, { recursive: true });
    }
    await expect(fetch(`http://127.0.0.1:${running.port}`)).rejects.toThrow("fetch failed");
  });
});
