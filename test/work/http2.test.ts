/** The cost of a request whose upstream speaks HTTP/2: the number of bytes that reach V8's old generation. */
import { createServer } from "node:http2";
import { expect, test } from "vitest";
import { listen } from "../helpers/serve.ts";
import { concurrently, startWork } from "./_work.ts";

/** The number of requests that share a connection at a time. */
const STREAMS = 16;

/**
 * The maximum number of bytes of a request that reach the old generation. Node's own objects of a stream take 3 KB there,
 * because `node:http2` has the streams of a session in a `Map`, and V8 keeps the earlier tables of a `Map`.
 */
const OLD_BUDGET = 5000;

test("over HTTP/2, the number of bytes per request that reach V8's old generation is within the budget", async () => {
  const upstream = createServer((_, res) => void res.end("x".repeat(1024)));
  const port = await listen(upstream);
  const target = `http://127.0.0.1:${port}`;
  const worker = await startWork("node", "old", "work/_http2", { target });
  try {
    const { bytes = Number.NaN } = await worker.count(concurrently(STREAMS), 40);
    expect(bytes / STREAMS).toBeGreaterThan(0);
    expect(bytes / STREAMS).toBeLessThanOrEqual(OLD_BUDGET);
  } finally {
    await worker.stop();
    upstream.close();
  }
});
