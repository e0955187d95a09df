/** Many requests on kept connections that the upstream closes. Retries hide this, except for POSTs. */
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from "vitest";
import { createProxy, createTransport } from "../../../runtimes/node.ts";
import type { Transport } from "../../../src/transport/port.ts";
import type { Call } from "../../helpers/link.ts";
import { listen } from "../../helpers/serve.ts";
import { Upstream } from "../../helpers/upstream.ts";
import { pause } from "../../helpers/wait.ts";
import type { Header } from "../../helpers/wire.ts";

/** The number of requests in each test. Set REQUESTS=10000 for a longer run. */
const REQUESTS = Number(process.env["REQUESTS"] ?? 250);
const LONG = 30_000 + 10 * REQUESTS;

const upstream = new Upstream();
beforeAll(() => upstream.listen());
afterAll(() => upstream.stop());

let transport: Transport;
beforeEach(() => {
  transport = createTransport({ freeSocketTimeout: 400 });
});
afterEach(async () => {
  transport.destroy?.();
  await upstream.reset();
});

const closings = {
  FIN: (call: Call): void => call.close(),
  RST: (call: Call): void => call.reset(),
};

describe("with retries", () => {
  const server = createServer();
  afterAll(() => server.close().closeAllConnections());

  /**
   * Starts a proxy with the transport.
   * @returns the proxy's origin
   */
  async function startProxy(target: string): Promise<string> {
    const { nodeHandler } = createProxy({ target, transport });
    server.removeAllListeners("request").on("request", nodeHandler);
    if (!server.listening) await listen(server);
    return `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
  }

  const hints: Record<string, Header[]> = {
    "no hint": [],
    "a hint": [["Keep-Alive", "timeout=5"]],
  };
  /** When the upstream closes a connection: when the second request arrives on it, or after each response. */
  const moments = ["as it is reused", "after each answer"] as const;
  const cases = Object.keys(closings).flatMap((how) =>
    moments.flatMap((moment) => Object.keys(hints).map((hint) => [how, moment, hint] as const)),
  );

  test.each(cases)(
    "%s %s, with %s: idempotent requests never fail, and no POST reaches the upstream twice",
    async (how, moment, hint) => {
      const seen = new Map<string, number>();
      const close = closings[how as "FIN" | "RST"];
      upstream.script = async (call) => {
        await call.done;
        seen.set(call.target, (seen.get(call.target) ?? 0) + 1);
        if (moment === "as it is reused" && call.link.calls.length > 1) return close(call);
        call.reply(200, hints[hint], "ok");
        if (moment === "after each answer") setTimeout(close, Math.random() * 3, call);
      };
      const proxy = await startProxy(upstream.url);
      const failed: string[] = [];
      let posts = 0;
      let id = 0;
      const work = async (): Promise<void> => {
        while (id < REQUESTS) {
          const method = ["GET", "PUT", "POST", "DELETE", "HEAD"][id % 5] as string;
          const body = method.startsWith("P") ? "a body" : null;
          const path = `/${method}/${id++}`;
          const response = await fetch(proxy + path, { method, body });
          await response.arrayBuffer();
          if (method === "POST") posts++;
          if (response.status !== 200) failed.push(path);
          if (moment === "after each answer") await pause(Math.random() * 3);
        }
      };
      await Promise.all(Array.from({ length: 8 }, work));
      const failedPosts = failed.filter((path) => path.startsWith("/POST"));
      expect(failed).toEqual(failedPosts);
      const twice = [...seen].filter(([path, times]) => path.startsWith("/POST") && times > 1);
      expect(twice).toEqual([]);
      // Requests that were sent again are counted too. If there are none, no request met a connection that the upstream had
      // closed, and the test has tested nothing.
      expect(transport.stats?.().requests).toBeGreaterThan(REQUESTS);
      if (process.env["REQUESTS"]) console.log(`${failedPosts.length} of ${posts} POSTs failed`);
    },
    LONG,
  );

  test(
    "no POST fails if the upstream keeps idle connections longer than the proxy",
    async () => {
      // The proxy keeps idle connections for 400 ms, and the upstream much longer, so that a request that a busy machine delays
      // does not meet a closed connection.
      const ids: string[] = [];
      const slow = createServer((req, res) => {
        ids.push(req.url as string);
        req.resume().on("end", () => res.end());
      });
      Object.assign(slow, { keepAliveTimeout: 1500, keepAliveTimeoutBuffer: 0 });
      slow.on("request", (_, res) => res.removeHeader("Keep-Alive"));
      const port = await listen(slow);
      const proxy = await startProxy(`http://127.0.0.1:${port}`);
      const failed: number[] = [];
      let id = 0;
      const work = async (): Promise<void> => {
        while (id < REQUESTS) {
          const response = await fetch(`${proxy}/${id++}`, { method: "POST", body: "a body" });
          if (response.status !== 200) failed.push(id);
          // Send the next request around the time when either side closes the connection.
          await pause(350 + Math.random() * 1200);
        }
      };
      await Promise.all(Array.from({ length: Math.ceil(REQUESTS / 4) }, work));
      slow.close();
      expect(failed).toEqual([]);
      expect(new Set(ids).size).toBe(ids.length);
    },
    LONG,
  );
});
