/** Custom `fetch` functions: encoded and decoded bodies, and header fields that describe them correctly. */
import { createServer, type IncomingHttpHeaders } from "node:http";
import {
  brotliCompressSync,
  brotliDecompressSync,
  deflateSync,
  gunzipSync,
  gzipSync,
  inflateSync,
  zstdCompressSync,
  zstdDecompressSync,
} from "node:zlib";
import { Hono } from "hono";
import { compress } from "hono/compress";
import { afterAll, afterEach, beforeAll, describe, expect, test } from "vitest";
import { createProxy, type ProxyOptions } from "../../../runtimes/node.ts";
import { createProxy as createFetchProxy } from "../../../runtimes/fetch.ts";
import { startProgram } from "../../helpers/program.ts";
import { listen } from "../../helpers/serve.ts";

const TEXT = "a body that compresses well; ".repeat(100);
const gzipped = gzipSync(TEXT);

let seen: IncomingHttpHeaders[] = [];
/** Encodes the response if the request accepts gzip, and always for /always. */
const server = createServer((req, res) => {
  seen.push(req.headers);
  const coded = req.url === "/always" || /gzip/.test(String(req.headers["accept-encoding"]));
  res.setHeader("ETag", '"v1"');
  if (coded) res.setHeader("Content-Encoding", "gzip");
  const body = coded ? gzipped : TEXT;
  res.setHeader("Content-Length", body.length);
  res.end(body);
});
let target = "";
beforeAll(async () => {
  target = `http://127.0.0.1:${await listen(server)}`;
});
afterEach(() => {
  seen = [];
});
afterAll(() => {
  server.closeAllConnections();
  server.close();
});

const ask = (path = "/"): Request =>
  new Request(`http://proxy.test${path}`, { headers: { "accept-encoding": "gzip, br" } });

/** Returns the header fields that describe the content coding, and the body. */
async function summarize(response: Response): Promise<unknown> {
  const fields = ["content-encoding", "content-length", "etag"].map((name) =>
    response.headers.get(name),
  );
  return [...fields, Buffer.from(await response.arrayBuffer()).equals(gzipped) ? "gzip" : "text"];
}

const whole = [null, String(TEXT.length), '"v1"', "text"];
const undone = [null, null, 'W/"v1"', "text"];

describe.each<[string, (options?: ProxyOptions) => (request: Request) => Promise<Response>]>([
  ["the option `fetch`", (options) => createProxy({ target, fetch, ...options }).fetch],
  ["the global fetch", (options) => createFetchProxy({ target, ...options }).fetch],
])("a proxy with %s", (_, make) => {
  test("the upstream gets `Accept-Encoding: identity`, so that nothing needs decoding", async () => {
    expect(await summarize(await make()(ask()))).toEqual(whole);
    expect(seen[0]?.["accept-encoding"]).toBe("identity");
  });

  test("the header fields are adapted when fetch decodes a response that is encoded anyway", async () => {
    expect(await summarize(await make()(ask("/always")))).toEqual(undone);
  });

  test.each<[string, ProxyOptions, string]>([
    ["headers", { headers: { "Accept-Encoding": "gzip" } }, "gzip"],
    ["forwardHeaders", { forwardHeaders: ["accept-encoding"] }, "gzip, br"],
    [
      "onRequest",
      { onRequest: (draft) => draft.headers.set("accept-encoding", "gzip;q=0.5") },
      "gzip;q=0.5",
    ],
  ])("content codings can be requested with the option %s", async (_option, options, asked) => {
    expect(await summarize(await make(options)(ask()))).toEqual(undone);
    expect(seen[0]?.["accept-encoding"]).toBe(asked);
  });
});

test("the option `fetch` may return a copy of a response that fetch has decoded", async () => {
  const copying = async (url: string, init: RequestInit): Promise<Response> => {
    const fetched = await fetch(url, init);
    const copy = new Response(fetched.body, fetched);
    copy.headers.set("x-copied", "1");
    return copy;
  };
  const response = await createProxy({ target, fetch: copying }).fetch(ask("/always"));
  expect(response.headers.get("x-copied")).toBe("1");
  expect(await summarize(response)).toEqual(undone);
});

test("Fetchway's own client forwards Accept-Encoding and the encoded bytes", async () => {
  const proxy = createProxy({ target });
  expect(await summarize(await proxy.fetch(ask()))).toEqual([
    "gzip",
    String(gzipped.length),
    '"v1"',
    "gzip",
  ]);
  expect(seen[0]?.["accept-encoding"]).toBe("gzip, br");
  await proxy.close();
});

describe("an app in the same process", () => {
  const app = new Hono();
  app.use("/compressed", compress());
  app.get("/compressed", (c) => c.text(TEXT));
  app.get("/coded", (c) =>
    c.body(gzipped, 200, { "content-encoding": "gzip", "content-length": String(gzipped.length) }),
  );
  app.get("/asked", (c) => c.text(String(c.req.header("accept-encoding"))));
  const { fetch } = createProxy({
    target: "http://app.test",
    fetch: (url, init) => app.request(url, init),
  });

  test("gets `Accept-Encoding: identity`", async () => {
    expect(await (await fetch(ask("/asked"))).text()).toBe("identity");
    expect(await summarize(await fetch(ask("/compressed")))).toEqual([null, null, null, "text"]);
  });

  test("may return an encoded body, and the client gets this body unchanged, with its header fields", async () => {
    const coded = ["gzip", String(gzipped.length), null, "gzip"];
    const proxy = createProxy({ target: app });
    expect(await summarize(await proxy.fetch(ask("/coded")))).toEqual(coded);
  });
});

type Code = (bytes: Uint8Array) => Uint8Array;

/** For each content coding, the function that applies it and the one that undoes it. */
const CODECS: Record<string, [encode: Code, decode: Code]> = {
  gzip: [gzipSync, gunzipSync],
  "x-gzip": [gzipSync, gunzipSync],
  deflate: [deflateSync, inflateSync],
  br: [brotliCompressSync, brotliDecompressSync],
  zstd: [zstdCompressSync, zstdDecompressSync],
};
const codecsOf = (codings: string): [Code, Code][] =>
  codings.split(", ").map((coding) => CODECS[coding.toLowerCase()] as [Code, Code]);

describe("a response that is encoded in any way", () => {
  const codings = [...Object.keys(CODECS), "GZIP", "gzip, br"];
  const encoding = createServer((req, res) => {
    const coding = decodeURIComponent((req.url ?? "").slice(1));
    const body = codecsOf(coding).reduce<Uint8Array>(
      (bytes, [encode]) => encode(bytes),
      Buffer.from(TEXT),
    );
    res.writeHead(200, { "Content-Encoding": coding, "Content-Length": body.length }).end(body);
  });
  let origin = "";
  beforeAll(async () => {
    origin = `http://127.0.0.1:${await listen(encoding)}`;
  });
  afterAll(() => encoding.close().closeAllConnections());

  test.each([
    ["node", []],
    ["bun", []],
    ["deno", ["run", "-A"]],
  ] as const)(
    "has the Content-Encoding of its body on %s, whether or not `fetch` has decoded it",
    async (tool, flags) => {
      const args = [...flags, "test/runtimes/fetch/_codings.program.ts", origin, ...codings];
      await using program = startProgram(tool, args);
      await program.ended();
      const lines = program.output().trim().split("\n");
      const wrong = lines.filter((line) => {
        const { kept, body } = JSON.parse(line) as { kept: string | null; body: string };
        try {
          const decoded = (kept === null ? [] : codecsOf(kept)).reduceRight<Uint8Array>(
            (bytes, [, decode]) => decode(bytes),
            Buffer.from(body, "base64"),
          );
          return Buffer.from(decoded).toString() !== TEXT;
        } catch {
          return true;
        }
      });
      expect(wrong).toEqual([]);
      expect(lines).toHaveLength(4 * codings.length);
    },
  );
});
