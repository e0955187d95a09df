/**
 * Connections that the upstream closes when they are reused, on Bun and Deno. The requests are counted at the upstream.
 */
import { afterAll, afterEach, beforeAll, describe, expect, test } from "vitest";
import type { Call } from "../../helpers/link.ts";
import { type RuntimeName, Served } from "./_served.ts";
import { Upstream } from "../../helpers/upstream.ts";
import { until } from "../../helpers/wait.ts";
import { type Header, request } from "../../helpers/wire.ts";

/** The number of requests of each case. Set STALE_REQUESTS=10000 for a long run. */
const COUNT = Number(process.env["STALE_REQUESTS"] ?? 120);
const PATIENCE = 30_000 + COUNT * 20;

const upstream = new Upstream();
beforeAll(() => upstream.listen());
afterEach(() => upstream.reset());
afterAll(() => upstream.stop());

const closings: Record<string, (call: Call) => void> = {
  FIN: (call) => call.close(),
  RST: (call) => call.reset(),
};
const hints: Record<string, Header[]> = { none: [], "5 s": [["Keep-Alive", "timeout=5"]] };

const cases = Object.keys(closings).flatMap((how) =>
  Object.keys(hints).map((hint): [string, string] => [how, hint]),
);

/** Answers the first request on each connection, and closes the connection when another request arrives on it. */
function closesWhenReused(how: string, hint: string): void {
  upstream.script = async (call) => {
    await call.done;
    if (call.link.calls.length > 1) closings[how]?.(call);
    else call.reply(200, hints[hint]);
  };
}

describe.each<RuntimeName>(["bun", "deno"])("on %s", (runtime) => {
  test.each(cases)(
    "no idempotent request fails if connections are closed by %s when they are reused (hint: %s)",
    async (how, hint) => {
      closesWhenReused(how, hint);
      await using served = new Served(runtime, upstream.url);
      const client = await served.connect();
      for (let id = 0; id < COUNT; id++) {
        const method = ["GET", "HEAD", "DELETE", "OPTIONS", "PUT"][id % 5] as string;
        client.send(request(method, `/${id}`, [], method === "PUT" ? "a body" : undefined));
        expect((await client.read(method)).status, `${method} /${id}`).toBe(200);
      }
      // Without reused connections, the test would have tested nothing.
      const reused = upstream.links.filter(({ calls }) => calls.length > 1).length;
      expect(reused).toBeGreaterThan(COUNT / 4);
      const { created, requests } = await served.stats();
      expect({ created, requests }).toEqual({
        created: upstream.links.length,
        requests: upstream.calls.length,
      });
    },
    PATIENCE,
  );

  test.each(cases)(
    "a POST reaches the upstream once if connections are closed by %s when they are reused (hint: %s)",
    async (how, hint) => {
      closesWhenReused(how, hint);
      await using served = new Served(runtime, upstream.url);
      const client = await served.connect();
      const statuses: number[] = [];
      for (let id = 0; id < COUNT; id++) {
        client.send(request("POST", `/${id}`, [], id % 2 ? "a body" : undefined));
        statuses.push((await client.read()).status);
      }
      expect(new Set(statuses)).toEqual(new Set([200, 502]));
      // Only requests that arrived on a reused connection, which the upstream then closed, fail.
      const met = upstream.calls.filter(({ link, target }) => link.calls[0]?.target !== target);
      expect(statuses.filter((status) => status === 502)).toHaveLength(met.length);
      const sent = Array.from({ length: COUNT }, (_, id) => `/${id}`);
      expect(upstream.calls.map(({ target }) => target)).toEqual(sent);
    },
    PATIENCE,
  );

  test(
    "no POST fails when the upstream closes idle connections at the time that its Keep-Alive hint announces",
    async () => {
      const timers = new Set<NodeJS.Timeout>();
      upstream.script = async (call) => {
        await call.done;
        call.reply(200, [["Keep-Alive", "timeout=1"]]);
        const { link } = call;
        timers.add(setTimeout(() => link.idle && link.socket.resetAndDestroy(), 1000));
      };
      await using served = new Served(runtime, upstream.url);
      const client = await served.connect();
      for (let id = 0; id < COUNT; id++) {
        client.send(request("POST", `/${id}`, [], "a body"));
        expect((await client.read()).status, `/${id}`).toBe(200);
      }
      expect(upstream.calls).toHaveLength(COUNT);
      for (const timer of timers) clearTimeout(timer);
    },
    PATIENCE,
  );

  test.each([256, 3])(
    "if all kept connections are stale, the second attempt uses a new connection (maxSockets: %i)",
    async (maxSockets) => {
      upstream.script = () => {};
      await using served = new Served(runtime, upstream.url, { maxSockets });
      const clients = await Promise.all(["/1", "/2", "/3"].map((path) => served.send(path)));
      await until(() => upstream.calls.length === 3, "three requests");
      closesWhenReused("RST", "none");
      for (const call of upstream.calls) call.reply(200);
      for (const client of clients) expect((await client.read()).status).toBe(200);
      expect(await served.ask("/again")).toBe("200 ");
      const again = upstream.calls.filter(({ target }) => target === "/again");
      expect(again.map(({ link }) => link.calls.length)).toEqual([2, 1]);
    },
  );

  test("a request whose response has begun, or that was aborted, is not sent again", async () => {
    upstream.script = (call) => {
      if (call.link.calls.length === 1) return call.reply(200);
      if (call.target === "/early") call.write("HTTP/1.1 103 Early Hints\r\n\r\n");
      if (call.target === "/half") call.write("HTTP/1.1 2");
      if (call.target !== "/silent") call.close();
    };
    await using served = new Served(runtime, upstream.url, {}, { timeout: 3_000 });
    for (const path of ["/early", "/half", "/silent"]) {
      expect(await served.ask("/first")).toBe("200 ");
      expect(await served.ask(path)).toMatch(path === "/silent" ? /^504 / : /^502 /);
      const seen = upstream.calls.filter(({ target }) => target === path);
      expect(seen).toHaveLength(1);
      expect(seen[0]?.link.calls).toHaveLength(2);
    }
  });
});
