/**
 * Whether each host uses the fast paths of the proxy. These depend on undocumented properties of servers: if one
 * disappears, the proxy uses the slow path, which also works, so that only these tests notice.
 */
import { rmSync, writeFileSync } from "node:fs";
import { basename } from "node:path";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { copyPathOf, readLinkedExample } from "../project/_example.ts";
import {
  get,
  getInPieces,
  getLarge,
  post,
  postInPieces,
  startWork,
  type Work,
  type Worker,
} from "./_work.ts";

/** Returns the counts of web API objects, which only a slow path creates for a request. */
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

  // @hono/node-server writes each response itself: it does not call the response's `_toNodeResponse`.
  const response = host === "hono" ? "built" : "lazy";
  const raw = { headers: "raw", address: "127.0.0.1", response };

  test("a request without a body is read from Node's request object, and the response takes the fast path", async () => {
    expect(await worker.path(get)).toEqual({ ...raw, body: "none" });
    expect(await worker.path(getInPieces)).toEqual({ ...raw, body: "none" });
  });

  test("a request with a body is read from Node's request object, and the response takes the fast path", async () => {
    expect(await worker.path(post)).toEqual({ ...raw, body: "raw" });
    expect(await worker.path(postInPieces)).toEqual({ ...raw, body: "raw" });
  });
});

/** The path of a copy of the example of a transport over `node:http`; undefined in the matrix, which compiles the example. */
const copy = process.env["HOST_FILES"] === undefined ? copyPathOf("transport") : undefined;
beforeAll(() => copy && writeFileSync(copy, readLinkedExample("transport")));
afterAll(() => copy && rmSync(copy));
const custom = `../examples/${copy === undefined ? "transport/index" : basename(copy, ".ts")}`;

/** The transports: Fetchway's own, and the custom one. */
const transports: [name: string, module: string][] = [
  ["Fetchway's own client", ""],
  ["a custom transport", custom],
];

describe.each(["node", "srvx", "h3"] as const)("%s", (host) => {
  test.each(transports)(
    "forwarding a request creates no web API object, with %s",
    async (_, transport) => {
      const worker = await startWork(host, "counts", transport);
      try {
        for (const ask of [get, post, getInPieces, postInPieces]) {
          expect(webObjects(await worker.count(ask)), ask.name).toEqual({});
        }
      } finally {
        await worker.stop();
      }
    },
  );
});

test("hono: only a response body that is large or still arriving becomes a web API object, which is a stream", async () => {
  const worker = await startWork("hono", "counts");
  try {
    for (const ask of [get, post, postInPieces]) {
      expect(webObjects(await worker.count(ask)), ask.name).toEqual({});
    }
    // A large body is a stream as well: if it were bytes that the server can read, the proxy could not free their memory.
    for (const ask of [getInPieces, getLarge]) {
      expect(webObjects(await worker.count(ask)), ask.name).toEqual({ ReadableStream: 1 });
    }
  } finally {
    await worker.stop();
  }
});
