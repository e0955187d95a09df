/**
 * Which way each host takes. The fast ways rest on undocumented properties of servers: if one
 * disappears, the slow way is taken, which works as well, so that only these tests notice.
 */
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import {
  get,
  getInPieces,
  getInTwoReads,
  post,
  postInPieces,
  startWork,
  type Work,
  type Worker,
} from "./_work.ts";

/** The web API objects that a slow way creates for a request. */
function webObjects(work: Work): Work {
  const names = new Set("Headers Request Response ReadableStream URL AbortController".split(" "));
  return Object.fromEntries(
    Object.entries(work).filter(([kind, count]) => names.has(kind) && count > 0),
  );
}

describe.each(["srvx", "h3", "hono"] as const)("%s", (host) => {
  let worker: Worker;
  beforeAll(async () => {
    worker = await startWork(host, "paths");
  });
  afterAll(() => worker.stop());

  // Hono's server writes a response by itself; it has no way to let a body do so.
  const response = host === "hono" ? "built" : "lazy";
  const raw = { headers: "raw", address: "127.0.0.1", response };

  test("a request is read from Node's request object, and the response writes itself to Node's", async () => {
    expect(await worker.path(get)).toEqual({ ...raw, body: "none" });
    expect(await worker.path(getInPieces)).toEqual({ ...raw, body: "none" });
  });

  test("a request body is read from Node's request object", async () => {
    expect(await worker.path(post)).toEqual({ ...raw, body: "raw" });
    expect(await worker.path(postInPieces)).toEqual({ ...raw, body: "raw" });
  });
});

/** The client under the proxy: Node's own, and one that an app could write, over `node:http`. */
const transports = ["", "../examples/transport"];

describe.each(["node", "srvx", "h3"] as const)("%s", (host) => {
  test.each(transports)("creates no web API object, with transport %j", async (transport) => {
    const worker = await startWork(host, "counts", transport);
    try {
      for (const ask of [get, post, getInPieces, postInPieces]) {
        expect(webObjects(await worker.count(ask)), ask.name).toEqual({});
      }
    } finally {
      await worker.stop();
    }
  });
});

test("hono: creates a stream for a body that is still arriving, and no other web API object", async () => {
  const worker = await startWork("hono", "counts");
  try {
    for (const ask of [get, post, postInPieces]) {
      expect(webObjects(await worker.count(ask)), ask.name).toEqual({});
    }
    expect(webObjects(await worker.count(getInPieces))).toEqual({ ReadableStream: 1 });
    // How the system cuts it is chance: most of the time the rest is there for the next read.
    const { ReadableStream: streams = 0 } = await worker.count(getInTwoReads);
    expect(streams).toBeLessThan(0.5);
  } finally {
    await worker.stop();
  }
});
