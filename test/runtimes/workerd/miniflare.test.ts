/** In-process targets of Workers: the proxy's Worker and its bindings, run by Miniflare. */
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { gunzipSync } from "node:zlib";
import { build } from "esbuild";
import { Miniflare, type MiniflareOptions } from "miniflare";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { type Answer, type Client, connect } from "../../helpers/client.ts";
import { cases } from "../inprocess/_inprocess.ts";
import { digestOf, mebibyte, pour } from "../../helpers/large.ts";
import { patience } from "../../helpers/wait.ts";
import { type Header, request } from "../../helpers/wire.ts";

const directory = mkdtempSync(join(tmpdir(), "fetchway-"));
writeFileSync(join(directory, "page.txt"), "an asset");
const compatibilityDate = "2026-10-01";

async function bundle(name: string): Promise<object> {
  const { outputFiles } = await build({
    entryPoints: [fileURLToPath(new URL(`workers/${name}.ts`, import.meta.url))],
    bundle: true,
    write: false,
    format: "esm",
    target: "es2024",
    conditions: ["workerd"],
    external: ["cloudflare:workers"],
  });
  const contents = outputFiles[0]?.text ?? "";
  return {
    mainModule: "index.mjs",
    modulesRoot: "/",
    modules: { "index.mjs": { type: "esm", contents } },
  };
}

/** Messages that workerd prints for exceptions and failed bodies, which these tests cause on purpose. */
const ORDINARY = /reading 'secret'|ProxyError: no .* within 1000 ms/;

let miniflare: Miniflare;
let port = 0;

beforeAll(async () => {
  const [proxy, bound] = await Promise.all([bundle("proxy"), bundle("bound")]);
  miniflare = new Miniflare({
    host: "127.0.0.1",
    port: 0,
    cf: false,
    telemetry: { enabled: false },
    handleStructuredLogs({ message }: { message: string }) {
      if (!ORDINARY.test(message)) console.error(message);
    },
    workers: [
      {
        config: {
          name: "proxy",
          compatibilityDate,
          compatibilityFlags: ["enable_request_signal"],
          manifest: proxy,
          env: {
            SERVICE: { type: "worker", worker: "service" },
            ROOMS: { type: "durable-object", worker: "proxy", exportName: "Room" },
            ASSETS: { type: "assets" },
          },
          exports: { Room: { type: "durable-object", storage: "sqlite" } },
          assets: { directory, hasUserWorker: true, runWorkerFirst: true },
        },
        // Connect directly, without Miniflare's own Worker in front, because it would encode responses again.
        dev: { rootPath: directory, unsafeDirectSockets: [{ host: "127.0.0.1", port: 0 }] },
      },
      {
        config: {
          name: "service",
          compatibilityDate,
          compatibilityFlags: ["enable_request_signal"],
          manifest: bound,
        },
      },
    ],
  } as MiniflareOptions);
  await miniflare.ready;
  port = Number((await miniflare.unsafeGetDirectURL("proxy")).port);
});
afterAll(async () => {
  await miniflare.dispose();
  rmSync(directory, { recursive: true });
});

async function send(method: string, path: string, fields: Header[] = []): Promise<Client> {
  const client = await connect(port);
  client.send(request(method, path, fields));
  return client;
}

async function get(path: string, fields: Header[] = []): Promise<Answer> {
  const client = await send("GET", path, fields);
  const answer = await client.read();
  client.leave("FIN");
  return answer;
}

interface Seen {
  url: string;
  fields: Record<string, string>;
}

describe.each(["service", "watched", "room/a", "callable", "app", "appWatched"])(
  "a Worker or an app as the target, at the path /%s",
  (way) => {
    test("the request has the target's authority in its URL and in Host", async () => {
      const answer = await get(`/${way}/echo?a%2Fb`, [["X-Own", "1"]]);
      expect(answer.status).toBe(200);
      const { url, fields } = JSON.parse(answer.text) as Seen;
      expect(url).toBe(`http://app.invalid/echo${way === "room/a" ? "" : "?a%2Fb"}`);
      expect(fields).toMatchObject({ host: "app.invalid", "x-own": "1" });
      expect(fields).toHaveProperty("x-forwarded-host");
    });

    test("an encoded body passes unchanged, with its length and its strong ETag", async () => {
      const answer = await get(`/${way}/gzip`, [["Accept-Encoding", "gzip"]]);
      expect(answer.get("content-encoding")).toBe("gzip");
      expect(answer.get("etag")).toBe('"strong"');
      expect(answer.get("content-length")).toBe(String(answer.body.length));
      expect(gunzipSync(answer.body).length).toBe(2900);
    });

    test("a body that workerd encodes is encoded once", async () => {
      const answer = await get(`/${way}/to-encode`, [["Accept-Encoding", "gzip"]]);
      expect(answer.get("content-encoding")).toBe("gzip");
      expect(gunzipSync(answer.body).length).toBe(2900);
    });

    test("status, reason phrase and every cookie pass unchanged", async () => {
      const answer = await get(`/${way}/cookies`);
      expect([answer.status, answer.reason, answer.text]).toEqual([299, "Odd One", "odd"]);
      expect(answer.all("set-cookie")).toEqual(["a=1; Path=/, x", "b=2"]);
    });

    test("a redirect to the target becomes a redirect to the proxy", async () => {
      const answer = await get(`/${way}/redirect`);
      const prefix = way === "room/a" ? "" : `/${way}`;
      expect([answer.status, answer.get("location")]).toEqual([302, `${prefix}/echo?followed`]);
    });

    test("an exception of the target becomes 502, and the client does not see its text", async () => {
      const answer = await get(`/${way}/throw`);
      expect(answer.status).toBe(502);
      expect(answer.text).toBe("Bad Gateway: connection_terminated\n");
    });

    test("large bodies stream in both directions", async () => {
      const size = 8 * mebibyte;
      for (const chunked of [false, true]) {
        const framing: Header = chunked
          ? ["Transfer-Encoding", "chunked"]
          : ["Content-Length", String(size)];
        const client = await send("POST", `/${way}/back`, [framing]);
        const [answer] = await Promise.all([
          client.read("POST"),
          pour(client.socket, size, { chunked }),
        ]);
        expect([answer.length, answer.sha256]).toEqual([size, digestOf(size)]);
        expect(answer.get("x-length")).toBe(chunked ? "none" : String(size));
        client.leave("FIN");
      }
    });
  },
);

/** Repeats a request until its answer is this text. */
async function untilText(path: string, text: string): Promise<void> {
  for (const start = performance.now(); (await get(path)).text !== text;) {
    if (performance.now() - start > patience) throw new Error(`${path}: never ${text}`);
  }
}

test.each(
  // "app" is left out: when the client disconnects, workerd ends a Worker that has no other work, with the app in it.
  ["service", "watched", "room/a", "callable", "waiting"].flatMap((way) => [
    [way, "hang"],
    [way, "stream"],
  ]),
)(
  "the request to the target at the path /%s is aborted when the client disconnects: %s",
  async (way, path) => {
    const client = await send("GET", `/${way}/${path}`);
    if (path === "stream") await client.readHead();
    await untilText(`/${way}/aborted`, "false");
    client.leave("RST");
    await untilText(`/${way}/aborted`, "true");
  },
);

test("an interceptor can answer 304 in place of an encoded response of an app in the Worker's own isolate", async () => {
  const answer = await get("/unmodified/gzip", [["Accept-Encoding", "gzip"]]);
  expect([answer.status, answer.get("etag"), answer.text]).toEqual([304, '"strong"', ""]);
});

test("idleTimeout applies to an encoded body of another Worker", async () => {
  const client = await send("GET", "/impatient/stalled", [["Accept-Encoding", "gzip"]]);
  const answer = await client.read();
  expect(answer.get("content-encoding")).toBe("gzip");
  expect(answer.body.length).toBe(20);
});

test("all cases of apps in the same process pass with an app in the Worker's own isolate", async () => {
  const answer = await get("/cases");
  const none = Object.fromEntries(Object.keys(cases).map((name) => [name, null]));
  expect(JSON.parse(answer.text)).toEqual(none);
});

test("a service binding, in an object with a `url`, gets requests for that URL", async () => {
  const { url, fields } = JSON.parse((await get("/named/echo")).text) as Seen;
  expect([url, fields["host"]]).toEqual(["https://shop.example/base/echo", "shop.example"]);
});

test("a target whose `fetch` is a binding's method without its object causes a TypeError that names the fix", async () => {
  expect((await get("/unbound/echo")).text).toMatch(
    /^TypeError: fetchway: bad option `target`: .+ `\{ url, fetch: \(request\) => env\.SERVICE\.fetch\(request\) \}`/,
  );
});

test("if the target is passed in place of the request, proxyFetch throws a TypeError that says so", async () => {
  expect((await get("/swapped/echo")).text).toBe(
    "TypeError: fetchway: proxyFetch(request, target, options?) takes the incoming Request first, then the target",
  );
});

test("a followed redirect is sent to the same target", async () => {
  const { url } = JSON.parse((await get("/follow/redirect")).text) as Seen;
  expect(url).toBe("http://app.invalid/echo?followed");
});

describe.each(["assetsFirst", "serviceFirst"])(
  "the assets of a Worker and another Worker as targets: %s",
  (way) => {
    test.each([
      ["page.txt", 200, "an asset"],
      ["echo", 200, "app.invalid"],
      ["nothing", 404, ""],
    ])(
      "the client gets the response of the assets or of the other Worker: /%s",
      async (path, status, text) => {
        const answer = await get(`/${way}/${path}`);
        expect(answer.status).toBe(status);
        expect(answer.text).toContain(text);
      },
    );

    test("ETag passes, and a request with If-None-Match gets 304", async () => {
      const etag = (await get(`/${way}/page.txt`)).get("etag") ?? "";
      expect(etag).toMatch(/^(?:W\/)?".+"$/);
      const answer = await get(`/${way}/page.txt`, [["If-None-Match", etag]]);
      expect([answer.status, answer.text]).toEqual([304, ""]);
    });
  },
);
