/** Targets in process, tried one after the other. Imported by programs of every runtime: no runtime's API here. */
import { H3 } from "h3";
import { Hono } from "hono";
import type { CreateProxyOptions, FetchTarget, Proxy } from "../src/index.ts";

type Create = (options: CreateProxyOptions) => Proxy;
type Case = (createProxy: Create) => Promise<void>;

function assert(condition: boolean, what: string): asserts condition {
  if (!condition) throw new Error(what);
}

function assertEqual(seen: unknown, expected: unknown): void {
  const [a, b] = [JSON.stringify(seen), JSON.stringify(expected)];
  assert(a === b, `${a}, not ${b}`);
}

function read(path: string, init: RequestInit & { duplex?: "half" } = {}): Request {
  return new Request(`http://proxy.test${path}`, init);
}

async function until(condition: () => boolean, what: string): Promise<void> {
  for (const start = Date.now(); !condition(); ) {
    assert(Date.now() - start < 8000, `${what}: not within 8 s`);
    await new Promise((resolve) => setTimeout(resolve, 2));
  }
}

async function describeRequest(request: Request): Promise<Response> {
  const { method, url, headers } = request;
  const body = await request.text();
  return Response.json({ method, url, headers: Object.fromEntries(headers), body });
}

const h3 = new H3().all("/**", (event) => describeRequest(event.req));
const hono = new Hono().all("*", (c) => describeRequest(c.req.raw));
const frameworks: Record<string, FetchTarget> = { h3, hono };

interface Seen {
  method: string;
  url: string;
  headers: Record<string, string>;
  body: string;
}

async function ask(proxy: Proxy, request: Request): Promise<Seen> {
  const response = await proxy.fetch(request);
  assertEqual(response.status, 200);
  return (await response.json()) as Seen;
}

/** What a failed exchange is for its client. */
async function statusOf(proxy: Proxy, request: Request = read("/")): Promise<number> {
  const response = await proxy.fetch(request);
  const text = await response.text();
  assert(!/secret|at .*:\d+|invalid/.test(text), `it leaks: ${text}`);
  return response.status;
}

const mebibyte = 1024 * 1024;
const LENGTH = 8 * mebibyte;

/** Bytes that differ from chunk to chunk; it counts what was taken. */
function createSource(length = LENGTH): { stream: ReadableStream<Uint8Array>; taken: number } {
  const source = { stream: new ReadableStream<Uint8Array>(), taken: 0 };
  source.stream = new ReadableStream<Uint8Array>(
    {
      pull(controller) {
        if (source.taken === length) return controller.close();
        const chunk = new Uint8Array(64 * 1024).fill((source.taken / 65536) % 251);
        source.taken += chunk.byteLength;
        controller.enqueue(chunk);
      },
    },
    { highWaterMark: 0 },
  );
  return source;
}

/** How many bytes of it came, each what it should be. */
async function countBytes(body: ReadableStream<Uint8Array> | null): Promise<number> {
  let length = 0;
  const reader = (body as ReadableStream<Uint8Array>).getReader();
  for (let next = await reader.read(); !next.done; next = await reader.read()) {
    for (let i = 0; i < next.value.length; i += 4093) {
      assertEqual(next.value[i], Math.floor((length + i) / 65536) % 251);
    }
    length += next.value.length;
  }
  return length;
}

/** An app that answers with this. */
const answering = (answer: () => unknown): FetchTarget => ({
  fetch: async () => (await answer()) as Response,
});

/** A fetch that stands for the network, and what it was sent. */
function createNetwork(): {
  fetch: NonNullable<CreateProxyOptions["fetch"]>;
  sent: [string, Headers][];
} {
  const sent: [string, Headers][] = [];
  return {
    sent,
    fetch(url, { headers }) {
      sent.push([url, headers as Headers]);
      return new Response("from the network");
    },
  };
}

async function gzip(text: string): Promise<Uint8Array<ArrayBuffer>> {
  const zipped = new Blob([text]).stream().pipeThrough(new CompressionStream("gzip"));
  return new Uint8Array(await new Response(zipped).arrayBuffer());
}

const never = (): Promise<never> => new Promise<never>(() => {});

export const cases: Record<string, Case> = {
  async "an app sees the target's authority, and the request's path, query and fields"(create) {
    for (const target of Object.values(frameworks)) {
      const seen = await ask(
        create({ target }),
        read("//evil.test/a%2Fb?c=+&d", {
          method: "PUT",
          headers: { host: "proxy.test", "x-own": "1", "x-forwarded-host": "evil.test" },
          body: "body",
        }),
      );
      assertEqual(
        [seen.method, seen.url, seen.body],
        ["PUT", "http://app.invalid//evil.test/a%2Fb?c=+&d", "body"],
      );
      const { host, "x-own": own, "content-length": length } = seen.headers;
      assertEqual([host, own, length], ["app.invalid", "1", "4"]);
      assertEqual(seen.headers["x-forwarded-host"], "proxy.test");
    }
  },

  async "the url of an app gives authority, base path and query"(create) {
    for (const app of Object.values(frameworks)) {
      const target = {
        fetch: (request: Request) => app.fetch(request),
        url: "https://shop.example:8443/v1/?k=1",
      };
      const proxy = create({ target, headers: { "x-set": "1" } });
      const { url, headers } = await ask(proxy, read("/a?b"));
      assertEqual(url, "https://shop.example:8443/v1/a?k=1&b");
      assertEqual([headers["host"], headers["x-set"]], ["shop.example:8443", "1"]);
      assertEqual(await statusOf(proxy, read("/..%2fadmin")), 400);
    }
  },

  async "a function of the request may choose an app"(create) {
    const proxy = create({
      target: async (request) => frameworks[new URL(request.url).pathname.slice(1)] as FetchTarget,
    });
    for (const name of Object.keys(frameworks)) {
      assertEqual((await ask(proxy, read(`/${name}`))).url, `http://app.invalid/${name}`);
    }
  },

  async "a proxy may be the target of another"(create) {
    const inner = create({ target: hono, headers: { "x-inner": "1" } });
    const outer = create({ target: inner, headers: { "x-outer": "1" } });
    const { headers } = await ask(outer, read("/"));
    assertEqual([headers["x-inner"], headers["x-outer"]], ["1", "1"]);
    assertEqual(headers["x-forwarded-host"], "app.invalid");
  },

  async "hop-by-hop and forwarding fields are treated as for any upstream"(create) {
    const headers = new Headers({ "x-secret": "1", "x-real-ip": "6.6.6.6", te: "gzip" });
    headers.set("proxy-authorization", "Basic secret");
    const seen = await ask(create({ target: hono }), read("/", { headers }));
    assertEqual(seen.headers["x-secret"], "1");
    for (const name of ["x-real-ip", "te", "proxy-authorization"]) {
      assertEqual(name in seen.headers, false);
    }
  },

  async "onRequest and onResponse see what they see of any upstream"(create) {
    const proxy = create({
      target: h3,
      onRequest(draft) {
        draft.headers.set("x-hook", "1");
        draft.body = `${draft.path} replaced`;
      },
      onResponse: (response) => response.headers.set("x-after", "2"),
    });
    const response = await proxy.fetch(read("/a", { method: "POST", body: "old" }));
    assertEqual(response.headers.get("x-after"), "2");
    const { headers, body } = (await response.json()) as Seen;
    assertEqual([headers["x-hook"], headers["content-length"], body], ["1", "11", "/a replaced"]);
  },

  async "large bodies stream both ways"(create) {
    for (const app of [
      new H3().post("/", (event) => new Response(event.req.body)),
      new Hono().post("/", (c) => new Response(c.req.raw.body)),
    ]) {
      const source = createSource();
      const response = await create({ target: app }).fetch(
        read("/", { method: "POST", body: source.stream, duplex: "half" }),
      );
      assert(source.taken < LENGTH, "all was taken before anything was read");
      assertEqual(await countBytes(response.body), LENGTH);
    }
  },

  async "an app that does not read holds the client up"(create) {
    const source = createSource();
    const gate = Promise.withResolvers<void>();
    const proxy = create({
      target: {
        async fetch(request) {
          await gate.promise;
          return new Response(String(await countBytes(request.body)));
        },
      },
    });
    const answer = proxy.fetch(
      read("/", { method: "POST", body: source.stream, duplex: "half" }),
    );
    await until(() => source.taken > 0, "the first chunk");
    const taken = await settle(() => source.taken);
    assert(taken <= 2 * mebibyte, `${taken} bytes were taken for nobody`);
    gate.resolve();
    assertEqual(await (await answer).text(), String(LENGTH));
  },

  async "a client that does not read holds the app up"(create) {
    const source = createSource();
    const proxy = create({ target: answering(() => new Response(source.stream)) });
    const response = await proxy.fetch(read("/"));
    const taken = await settle(() => source.taken);
    assert(taken <= 2 * mebibyte, `${taken} bytes were made for nobody`);
    assertEqual(await countBytes(response.body), LENGTH);
  },

  async "status, reason, cookies and bodyless answers stay what they are"(create) {
    const app = new Hono();
    app.get("/odd", () => {
      const headers = new Headers([
        ["set-cookie", "a=1; Path=/, x"],
        ["set-cookie", "b=2"],
        ["connection", "x-hop"],
        ["x-hop", "1"],
      ]);
      return new Response("odd", { status: 299, statusText: "Odd One", headers });
    });
    app.get("/none", (c) => c.body(null, 204));
    app.get("/same", () => new Response(null, { status: 304, headers: { etag: '"x"' } }));
    const proxy = create({ target: app });
    const odd = await proxy.fetch(read("/odd"));
    assertEqual([odd.status, odd.statusText, await odd.text()], [299, "Odd One", "odd"]);
    assertEqual(odd.headers.getSetCookie(), ["a=1; Path=/, x", "b=2"]);
    assertEqual(odd.headers.get("x-hop"), null);
    for (const [path, status] of [["/none", 204], ["/same", 304]] as const) {
      const { status: seen, body } = await proxy.fetch(read(path));
      assertEqual([seen, body], [status, null]);
    }
    const head = await proxy.fetch(read("/odd", { method: "HEAD" }));
    assertEqual([head.status, await head.text()], [299, ""]);
  },

  async "what an app has encoded passes as it is"(create) {
    const bytes = await gzip("a body that compresses well; ".repeat(100));
    const headers = { "content-encoding": "gzip", "content-length": `${bytes.length}`, etag: '"x"' };
    // workerd's own: the bytes are encoded already.
    const init: ResponseInit & { encodeBody: "manual" } = { headers, encodeBody: "manual" };
    for (const options of [{}, { idleTimeout: 10_000 }]) {
      const target = answering(() => new Response(bytes, init));
      const response = await create({ target, ...options }).fetch(read("/"));
      for (const [name, value] of Object.entries(headers)) {
        assertEqual(response.headers.get(name), value);
      }
      assertEqual([...new Uint8Array(await response.arrayBuffer())], [...bytes]);
    }
  },

  async "redirects into the app become paths of the proxy"(create) {
    const target = {
      fetch: ({ url }: Request) => Response.redirect(new URL("/v1/there?x", url), 302),
      url: "https://shop.example/v1",
    };
    const response = await create({ target, stripPrefix: "/api" }).fetch(read("/api/a"));
    assertEqual(response.headers.get("location"), "/api/there?x");
  },

  async "a redirect that is followed stays with the app, within its origin"(create) {
    const { fetch, sent } = createNetwork();
    const app = new Hono()
      .post("/a", (c) => c.redirect("/b", 307))
      .post("/b", (c) => describeRequest(c.req.raw));
    const proxy = create({ target: app, fetch, followRedirects: true, headers: { "x-key": "1" } });
    const { url, headers, body } = await ask(proxy, read("/a", { method: "POST", body: "kept" }));
    assertEqual([url, headers["x-key"], body], ["http://app.invalid/b", "1", "kept"]);
    assertEqual(sent.length, 0);
  },

  async "one that leaves its origin goes to the network, without secrets"(
    create,
  ) {
    const { fetch, sent } = createNetwork();
    const target = answering(() => Response.redirect("http://other.test/x"));
    const proxy = create({
      target,
      fetch,
      followRedirects: true,
      redirectTargets: "any",
      headers: { "x-key": "1" },
    });
    const response = await proxy.fetch(read("/", { headers: { cookie: "a=1", "x-own": "1" } }));
    assertEqual(await response.text(), "from the network");
    const [[url, headers] = ["", new Headers()]] = sent;
    assertEqual([sent.length, url], [1, "http://other.test/x"]);
    assertEqual(["x-key", "cookie", "x-own"].map((name) => headers.get(name)), [null, null, "1"]);
  },

  async "whatever an app throws is 502, and it is asked once"(create) {
    const refusal = Object.assign(new TypeError("fetch failed: secret"), {
      cause: { code: "ECONNREFUSED" },
    });
    const undefinedField = new TypeError("Cannot read properties of undefined (reading 'secret')");
    const aborted = new DOMException("secret", "AbortError");
    for (const thrown of [new Error("secret"), refusal, undefinedField, aborted, "secret"]) {
      for (const isSync of [false, true]) {
        let calls = 0;
        const causes: unknown[] = [];
        const target: FetchTarget = {
          fetch() {
            calls++;
            // oxlint-disable-next-line only-throw-error
            if (isSync) throw thrown;
            return Promise.reject(thrown);
          },
        };
        const proxy = create({ target, onError: (error) => void causes.push(error.cause) });
        assertEqual(await statusOf(proxy), 502);
        assert(causes[0] === thrown, "onError does not get the cause");
        assertEqual([calls, causes.length], [1, 1]);
      }
    }
  },

  async "the failure of another proxy, as an app, is an answer of it, or 502"(create) {
    let calls = 0;
    const inner = create({
      target: answering(() => {
        calls++;
        throw new Error("secret");
      }),
    });
    assertEqual(await statusOf(create({ target: inner })), 502);
    assertEqual(calls, 1);
  },

  async "an answer that is no response is 502"(create) {
    const used = new Response("x");
    await used.text();
    for (const answer of [undefined, null, "text", {}, used, Response.error()]) {
      assertEqual(await statusOf(create({ target: answering(() => answer) })), 502);
    }
  },

  async "a body that fails, or is not as long as it says, never looks whole"(create) {
    const broken = (): Response => {
      const chunks = ["half"];
      return new Response(
        new ReadableStream({
          pull(controller) {
            const chunk = chunks.shift();
            if (chunk === undefined) throw new Error("secret");
            controller.enqueue(new TextEncoder().encode(chunk));
          },
        }),
      );
    };
    const sized = (length: number) => () => {
      const { body } = new Response("four");
      return new Response(body, { headers: { "content-length": String(length) } });
    };
    for (const answer of [broken, sized(3), sized(5), sized(2000)]) {
      const response = await create({ target: answering(answer) }).fetch(read("/"));
      const outcome = await response.text().then(
        (text) => `whole: ${text}`,
        () => "failed",
      );
      assertEqual(outcome, "failed");
    }
    const whole = await create({ target: answering(sized(4)) }).fetch(read("/"));
    assertEqual(await whole.text(), "four");
  },

  async "a client's body that fails never looks whole to the app"(create) {
    const outcomes: string[] = [];
    const target: FetchTarget = {
      async fetch(request) {
        outcomes.push(await request.text().then(String, () => "failed"));
        return new Response();
      },
    };
    for (const headers of [{}, { "content-length": "10" }]) {
      const chunks = ["half"];
      const body = new ReadableStream<Uint8Array>({
        async pull(controller) {
          const chunk = chunks.shift();
          if (chunk !== undefined) return controller.enqueue(new TextEncoder().encode(chunk));
          await new Promise((resolve) => setTimeout(resolve, 50));
          throw new Error("broken");
        },
      });
      const request = read("/", { method: "POST", body, headers, duplex: "half" });
      // The app may answer all the same, as any upstream may.
      await (await create({ target }).fetch(request)).text();
    }
    await until(() => outcomes.length === 2, "the app's reading to end");
    assertEqual(outcomes, ["failed", "failed"]);
  },

  async "the app's signal aborts at the deadline"(create) {
    let signal: AbortSignal | undefined;
    const target: FetchTarget = {
      fetch(request) {
        ({ signal } = request);
        return never();
      },
    };
    assertEqual(await statusOf(create({ target, timeout: 30 })), 504);
    assertEqual(signal?.aborted, true);
  },

  async "the app's signal aborts when the client leaves, before the response and during it"(
    create,
  ) {
    let signal: AbortSignal | undefined;
    let cancelled = false;
    const target: FetchTarget = {
      fetch(request) {
        ({ signal } = request);
        if (request.url.endsWith("/before")) return never();
        const body = new ReadableStream<Uint8Array>({
          start: (controller) => controller.enqueue(new Uint8Array(1)),
          cancel: () => void (cancelled = true),
        });
        return new Response(body);
      },
    };
    const proxy = create({ target });
    const client = new AbortController();
    const answer = proxy.fetch(read("/before", { signal: client.signal }));
    await until(() => signal !== undefined, "the call");
    assertEqual(signal?.aborted, false);
    client.abort();
    assertEqual((await answer).status, 499);
    assertEqual(signal?.aborted, true);

    const response = await proxy.fetch(read("/during"));
    const reader = (response.body as ReadableStream<Uint8Array>).getReader();
    await reader.read();
    assertEqual([signal?.aborted, cancelled], [false, false]);
    await reader.cancel();
    await until(() => cancelled && signal?.aborted === true, "the cancellation");
  },

  async "a late answer is let go of"(create) {
    let cancelled = false;
    const gate = Promise.withResolvers<void>();
    const target = answering(async () => {
      await gate.promise;
      return new Response(new ReadableStream({ cancel: () => void (cancelled = true) }));
    });
    assertEqual(await statusOf(create({ target, timeout: 20 })), 504);
    gate.resolve();
    await until(() => cancelled, "the late body's cancellation");
  },

  async "statuses that are to be retried are, with the body"(create) {
    const bodies: string[] = [];
    const target: FetchTarget = {
      async fetch(request) {
        bodies.push(await request.text());
        return new Response(null, { status: bodies.length < 3 ? 503 : 200 });
      },
    };
    const retry = { attempts: 3, statusCodes: [503] };
    const request = read("/", { method: "PUT", body: "again" });
    assertEqual(await statusOf(create({ target, retry }), request), 200);
    assertEqual(bodies, ["again", "again", "again"]);
  },

  async "a method arrives as it is, or gets 501"(create) {
    for (const method of ["DELETE", "OPTIONS", "PATCH", "BREW", "patch", "TRACE"]) {
      let request: Request;
      try {
        request = read("/", { method });
      } catch {
        // This runtime has no such requests.
        continue;
      }
      if (request.method !== method) continue;
      const response = await create({ target: hono }).fetch(request);
      if (response.status === 501) continue;
      assertEqual(((await response.json()) as Seen).method, method);
    }
    const headers = { upgrade: "websocket", connection: "upgrade", "sec-websocket-key": "x" };
    const { status } = await create({ target: hono }).fetch(read("/", { headers }));
    assert(status === 501 || status === 200, `the handshake got ${status}`);
  },

  async "close() and stats() are about connections"(create) {
    const proxy = create({ target: hono });
    await ask(proxy, read("/"));
    assertEqual(proxy.stats()?.requests ?? 0, 0);
    await proxy.close();
    await ask(proxy, read("/"));
  },

  async "another Host is refused, and so is what belongs to connections"(create) {
    const target = hono;
    for (const more of [{ host: "shop.example" }, { changeOrigin: false }]) {
      assertMisuse(() => create({ target, ...more }), /Host|target's `url`/);
    }
    const wrong = { fetch: () => new Response(), socketPath: "/run/a" };
    assertMisuse(() => create({ target: wrong }), /leave out `socketPath`/);
    const late = create({ target: () => wrong });
    const error = await late.fetch(read("/")).catch((thrown: unknown) => thrown);
    assert(error instanceof TypeError, "a target that a function returns is not checked");
  },
};

function assertMisuse(body: () => unknown, message: RegExp): void {
  let thrown: unknown;
  try {
    body();
  } catch (error) {
    thrown = error;
  }
  assert(thrown instanceof TypeError && message.test(thrown.message), `it threw ${String(thrown)}`);
}

/** Waits until a number has stayed the same for a while. */
async function settle(count: () => number): Promise<number> {
  let last = -1;
  let since = Date.now();
  await until(() => {
    if (count() !== last) [last, since] = [count(), Date.now()];
    return Date.now() - since > 200;
  }, "rest");
  return last;
}

/** What went wrong, by case; null for nothing. */
export async function runCases(create: Create): Promise<Record<string, string | null>> {
  const outcomes: Record<string, string | null> = {};
  for (const [name, body] of Object.entries(cases)) {
    outcomes[name] = await body(create).then(
      () => null,
      (error: unknown) => String(error),
    );
  }
  return outcomes;
}
