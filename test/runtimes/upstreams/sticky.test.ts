/** Clients that stay with their upstream by a cookie, through a real proxy on Node. */
import { once } from "node:events";
import { createServer, type IncomingHttpHeaders, type Server } from "node:http";
import { connect as connectHttp2, createServer as createHttp2Server } from "node:http2";
import { connect } from "node:net";
import { afterEach, describe, expect, test } from "vitest";
import { createProxy, type NodeProxy, type ProxyOptions } from "../../../runtimes/node.ts";
import { mirrorTo } from "../../../src/exchange/mirror.ts";
import {
  type BalanceOptions,
  Balancer,
  byCookie,
  byHeader,
  consistentHash,
  sticky,
} from "../../../src/upstreams/balance.ts";
import { listen } from "../../helpers/serve.ts";
import { until } from "../../helpers/wait.ts";

const SECRET = "a secret of at least 32 characters";
const COOKIE = /^fetchway=([\w-]{22}); Path=\/; HttpOnly; SameSite=Lax$/;

interface Answer {
  readonly status?: number;
  readonly headers?: Record<string, string | string[]>;
}

let servers: Server[] = [];
/** The header fields of all requests to upstreams. */
let seen: IncomingHttpHeaders[] = [];
let urls: string[] = [];
let proxy: NodeProxy;
let target: Balancer;
let front: Server;
let origin = "";
/** Returns the answer of an upstream; undefined for 200 with the upstream's number. */
let answer: (index: number, path: string) => Answer | undefined = () => undefined;

async function start(
  count: number,
  balancing: BalanceOptions = {},
  options: ProxyOptions = {},
): Promise<void> {
  for (let index = 0; index < count; index++) {
    const server = createServer((req, res) => {
      seen.push(req.headers);
      const { status = 200, headers = {} } = answer(index, req.url ?? "") ?? {};
      res.writeHead(status, headers).end(String(index));
    });
    server.on("upgrade", (req, socket) => {
      seen.push(req.headers);
      socket.end(
        `HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: test\r\n\r\n${index}`,
      );
    });
    servers.push(server);
    urls.push(`http://127.0.0.1:${await listen(server)}`);
  }
  open(urls, { policy: "sticky", cookie: { secret: SECRET }, ...balancing }, options);
  front = createServer((req, res) => proxy.nodeHandler(req, res));
  proxy.attach(front);
  origin = `http://127.0.0.1:${await listen(front)}`;
}

/** Creates the proxy, or creates it again, as after a restart. */
function open(targets: string[], balancing: BalanceOptions, options: ProxyOptions = {}): void {
  target = new Balancer(targets, balancing);
  proxy = createProxy({ upgrades: ["test"], ...options, target });
}

interface Outcome {
  readonly index: string;
  readonly status: number;
  readonly cookies: string[];
  readonly control: string | null;
}

async function ask(cookie?: string, path = "/", init: RequestInit = {}): Promise<Outcome> {
  const headers = { ...(init.headers as object), ...(cookie !== undefined && { cookie }) };
  const response = await fetch(`${origin}${path}`, { ...init, headers });
  const { status } = response;
  const control = response.headers.get("cache-control");
  return {
    index: await response.text(),
    status,
    cookies: response.headers.getSetCookie(),
    control,
  };
}

/** Returns the `Cookie` field with which a client sends back the cookies that were set. */
const sendBack = (cookies: string[]): string =>
  cookies.map((each) => each.split(";")[0]).join("; ");

/** Sends requests without the cookie until the upstream with this index answers. Returns the cookie of that response. */
async function cookieOf(index: number): Promise<string> {
  for (let tries = 0; tries < 100; tries++) {
    const outcome = await ask();
    if (outcome.index === String(index)) return sendBack(outcome.cookies);
  }
  throw new Error(`upstream ${index} gets no request`);
}

afterEach(async () => {
  answer = () => undefined;
  proxy.destroy();
  for (const server of [front, ...servers]) {
    server.close();
    server.closeAllConnections();
  }
  servers = [];
  urls = [];
  seen = [];
  await Promise.resolve();
});

describe("clients", () => {
  test("a client stays with the upstream that has answered it, and upstreams do not see the cookie", async () => {
    await start(4);
    const indexes = new Set<string>();
    for (let client = 0; client < 40; client++) {
      const first = await ask();
      indexes.add(first.index);
      expect(first.cookies).toEqual([expect.stringMatching(COOKIE)]);
      expect(first.control).toBe("private");
      const cookie = sendBack(first.cookies);
      for (const sent of [cookie, `a=1; ${cookie}; b=2`, cookie.replace(/=(.*)/, '="$1"')]) {
        const next = await ask(sent);
        expect(next).toMatchObject({ index: first.index, cookies: [], control: null });
      }
    }
    // Without the cookie, the next policy chooses, so clients came to all four upstreams.
    expect(indexes.size).toBe(4);
    const cookies = new Set(seen.map(({ cookie }) => cookie));
    expect(cookies).toEqual(new Set([undefined, "a=1; b=2"]));
  });

  test("a client keeps its upstream after the proxy restarts with the same secret and another list of upstreams", async () => {
    await start(3);
    const cookie = await cookieOf(1);
    proxy.destroy();
    open([...urls.slice(1), "http://127.0.0.1:1"], {
      policy: "sticky",
      cookie: { secret: SECRET },
    });
    expect(await ask(cookie)).toMatchObject({ index: "1", cookies: [] });
    // With another secret, the cookie is invalid, and is replaced.
    proxy.destroy();
    open(urls, { policy: "sticky", cookie: { secret: SECRET.toUpperCase() } });
    const { cookies } = await ask(cookie);
    expect(cookies).toEqual([expect.stringMatching(COOKIE)]);
    expect(sendBack(cookies)).not.toBe(cookie);
    expect(seen.at(-1)?.cookie).toBeUndefined();
  });

  test("a client keeps its upstream while other upstreams are added and removed", async () => {
    await start(3);
    await target.remove(urls[2] as string);
    const cookie = await cookieOf(1);
    target.add(urls[2] as string);
    await target.remove(urls[0] as string);
    for (let n = 0; n < 10; n++) expect((await ask(cookie)).index).toBe("1");
    target.setWeight(urls[2] as string, 100);
    expect((await ask(cookie)).index).toBe("1");
  });

  test("a client gets another upstream and a new cookie if its own upstream fails, is ejected or is removed", async () => {
    await start(2, { outliers: { consecutiveFailures: 1 } }, { retry: { statusCodes: [503] } });
    const cookie = await cookieOf(0);
    answer = (index) => (index === 0 ? { status: 503 } : undefined);
    // The client's own upstream has failed the request, and another one has answered.
    const moved = await ask(cookie);
    expect(moved).toMatchObject({
      index: "1",
      status: 200,
      cookies: [expect.stringMatching(COOKIE)],
    });
    expect(target.states().map(({ state }) => state)).toEqual(["ejected", "up"]);
    answer = () => undefined;
    const again = await ask(cookie);
    expect(again).toMatchObject({ index: "1", cookies: moved.cookies });
    expect(await ask(sendBack(again.cookies))).toMatchObject({ index: "1", cookies: [] });
    await target.remove(urls[1] as string);
    expect(await ask(sendBack(again.cookies))).toMatchObject({ index: "0" });
  });

  test("a client waits while its own upstream is full, and gets another upstream if too many requests wait", async () => {
    await start(2, { maxRequests: 1, maxQueue: 1, policy: sticky({ next: "first" }) });
    const held: (() => void)[] = [];
    const [own] = servers as [Server, Server];
    const cookie = await cookieOf(0);
    own.removeAllListeners("request");
    own.on("request", (_, res) => void held.push(() => res.end("0")));
    const running = ask(cookie);
    await until(() => held.length === 1, "the first request");
    // A request without the cookie does not wait.
    expect(await ask()).toMatchObject({ index: "1" });
    const waiting = ask(cookie);
    await until(() => target.waiting === 1, "the second request");
    expect(await ask(cookie)).toMatchObject({
      index: "1",
      cookies: [expect.stringMatching(COOKIE)],
    });
    held[0]?.();
    await until(() => held.length === 2, "the second request at its upstream");
    held[1]?.();
    expect(await running).toMatchObject({ index: "0" });
    expect(await waiting).toMatchObject({ index: "0", cookies: [] });
  });

  test("a client gets no cookie for an upstream that is being removed", async () => {
    await start(1);
    const [own] = servers as [Server];
    const held: (() => void)[] = [];
    own.removeAllListeners("request");
    own.on("request", (_, res) => void held.push(() => res.end("0")));
    const running = ask();
    await until(() => held.length === 1, "the request");
    const removing = target.remove(urls[0] as string);
    held[0]?.();
    expect(await running).toMatchObject({ index: "0", cookies: [], control: null });
    await removing;
  });

  test("a 5xx of an upstream, or an error response of the proxy itself, sets no cookie", async () => {
    await start(1);
    answer = () => ({ status: 500 });
    expect(await ask()).toMatchObject({ status: 500, cookies: [] });
    for (const server of servers) server.close().closeAllConnections();
    expect(await ask()).toMatchObject({ status: 502, cookies: [] });
    await target.remove(urls[0] as string);
    expect(await ask("fetchway=AAAAAAAAAAAAAAAAAAAAAA")).toMatchObject({
      status: 503,
      cookies: [],
    });
  });
});

describe("responses and shared caches", () => {
  const setsCookie = async (
    headers: Record<string, string>,
    status = 200,
    init: RequestInit = {},
  ): Promise<[boolean, string | null]> => {
    answer = () => ({ status, headers });
    const { cookies, control } = await ask(undefined, "/", init);
    return [cookies.length > 0, control];
  };

  test("a response that a shared cache may keep gets no cookie, and one without Cache-Control becomes private", async () => {
    await start(1);
    expect(await setsCookie({ "cache-control": "public, max-age=60" })).toEqual([
      false,
      "public, max-age=60",
    ]);
    expect(await setsCookie({ "cache-control": "max-age=60" })).toEqual([false, "max-age=60"]);
    expect(await setsCookie({ "cdn-cache-control": "max-age=60" })).toEqual([false, null]);
    expect(await setsCookie({})).toEqual([true, "private"]);
    expect(await setsCookie({ "cache-control": "no-cache" })).toEqual([true, "no-cache, private"]);
    expect(await setsCookie({ "cache-control": "no-store" })).toEqual([true, "no-store"]);
    expect(await setsCookie({ location: "/" }, 404)).toEqual([true, "private"]);
    expect(await setsCookie({}, 200, { method: "POST" })).toEqual([true, "private"]);
    // A cache would add the fields of these responses to a stored response.
    expect(await setsCookie({ etag: '"x"' }, 304)).toEqual([false, null]);
    expect(await setsCookie({}, 200, { method: "HEAD" })).toEqual([false, null]);
  });
});

describe("cookies of the proxy", () => {
  test("the cookie is Secure if the client uses https, also according to trusted proxies", async () => {
    const https = { headers: { "x-forwarded-proto": "https" } };
    await start(1);
    expect((await ask(undefined, "/", https)).cookies).toEqual([expect.stringMatching(COOKIE)]);
    const withTrust: ProxyOptions = { trustProxy: ["loopback"] };
    for (const options of [withTrust, { ...withTrust, xfwd: false }]) {
      proxy.destroy();
      open(urls, { policy: "sticky" }, options);
      expect((await ask(undefined, "/", https)).cookies[0]).toMatch(/; SameSite=Lax; Secure$/);
      expect((await ask()).cookies).toEqual([expect.stringMatching(COOKIE)]);
    }
    proxy.destroy();
    open(urls, { policy: "sticky" }, { ...withTrust, xfwd: "forwarded" });
    const chain = { headers: { forwarded: 'for=192.0.2.1;by="_a,b";proto=https' } };
    expect((await ask(undefined, "/", chain)).cookies[0]).toMatch(/; Secure$/);
    const other = { headers: { forwarded: 'for=192.0.2.1;by="proto=https"' } };
    expect((await ask(undefined, "/", other)).cookies).toEqual([expect.stringMatching(COOKIE)]);
    const response = await proxy.fetch(new Request("https://proxy.test/"));
    await response.text();
    expect(response.headers.get("set-cookie")).toMatch(/; Secure$/);
  });

  test("the cookie is not rewritten, unlike the app's cookies, and is sent along with them", async () => {
    await start(1, {}, { cookiePathRewrite: { "/": "/app" }, cookieDomainRewrite: "x.test" });
    answer = () => ({ headers: { "set-cookie": ["a=1; Path=/", "b=2"] } });
    expect((await ask()).cookies).toEqual(["a=1; Path=/app", "b=2", expect.stringMatching(COOKIE)]);
  });

  test("if the upstream sets a cookie of the same name, the proxy sets none, and forwards that cookie when the client sends it back", async () => {
    await start(2);
    answer = () => ({ headers: { "set-cookie": "fetchway=the-app's; Path=/" } });
    expect((await ask()).cookies).toEqual(["fetchway=the-app's; Path=/"]);
    await ask("fetchway=the-app's");
    expect(seen.at(-1)?.cookie).toBe("fetchway=the-app's");
  });

  test("the cookie can have another name", async () => {
    await start(2, { cookie: { secret: SECRET, name: "route" } });
    const { cookies, index } = await ask("fetchway=AAAAAAAAAAAAAAAAAAAAAA");
    expect(cookies[0]).toMatch(/^route=/);
    expect(seen.at(-1)?.cookie).toBe("fetchway=AAAAAAAAAAAAAAAAAAAAAA");
    for (let n = 0; n < 5; n++) expect((await ask(sendBack(cookies))).index).toBe(index);
  });

  test("a cookie that was tampered with, or that is sent several times, does no harm", async () => {
    await start(2);
    const [one, other] = [await cookieOf(0), await cookieOf(1)];
    const flipped = one.replace(/.$/, (last) => (last === "A" ? "B" : "A"));
    expect((await ask(flipped)).cookies).toEqual([expect.stringMatching(COOKIE)]);
    for (const value of ["", "=", "__proto__", "constructor", "%00", '"', "x".repeat(5000)]) {
      expect((await ask(`fetchway=${value}`)).status).toBe(200);
    }
    // The first cookie that names an upstream counts, and no such cookie is forwarded.
    expect(await ask(`${flipped}; ${one}; ${other}; ${one}`)).toMatchObject({
      index: "0",
      cookies: [],
    });
    expect(seen.at(-1)?.cookie).toBeUndefined();
    // A cookie that another host of the site has set must not hide the valid one.
    await target.remove(urls[0] as string);
    expect(await ask(`${one}; ${other}`)).toMatchObject({ index: "1", cookies: [] });
    const many = Array.from({ length: 300 }, (_, n) => `c${n}=${n}`).join("; ");
    expect((await ask(`${many}; ${other}`)).index).toBe("1");
    expect(seen.at(-1)?.cookie).toBe(many);
  });

  test("onResponse sees the cookie, but onRequest, a mirror and request interceptors do not", async () => {
    const drafts: (string | null)[] = [];
    const kept: string[][] = [];
    const hooked: (string | null)[] = [];
    await start(2);
    const mirror = servers[1] as Server;
    const copied = new Promise<IncomingHttpHeaders>((resolve) => {
      mirror.on("request", (req) => resolve(req.headers));
    });
    proxy.destroy();
    open(
      urls.slice(0, 1),
      { policy: "sticky", cookie: { secret: SECRET } },
      {
        mirror: mirrorTo(urls[1] as string),
        onRequest: ({ headers }) => void drafts.push(headers.get("cookie")),
        onResponse: ({ headers }) => void hooked.push(headers.get("set-cookie")),
        interceptors: {
          request: [
            (next) => async (request, scope) => {
              const response = await next(request, scope);
              kept.push(response.headers);
              return response;
            },
          ],
        },
      },
    );
    await ask("a=1; fetchway=AAAAAAAAAAAAAAAAAAAAAA");
    expect(drafts).toEqual(["a=1"]);
    expect((await copied).cookie).toBe("a=1");
    expect(hooked).toEqual([expect.stringMatching(COOKIE)]);
    expect(kept[0]).not.toContain("Set-Cookie");
  });

  test("the cookie is also removed from requests and set on responses if `pathRewrite` is set", async () => {
    await start(2, {}, { pathRewrite: { "^/x": "" } });
    const { cookies, index } = await ask("a=1", "/x/y");
    expect(cookies).toEqual([expect.stringMatching(COOKIE)]);
    for (let n = 0; n < 5; n++) {
      const next = await ask(`a=1; ${sendBack(cookies)}`, "/x/y");
      expect(next).toMatchObject({ index, cookies: [] });
    }
    expect(new Set(seen.map(({ cookie }) => cookie))).toEqual(new Set(["a=1"]));
  });

  test("the cookie does not reach the upstream when a redirect is followed", async () => {
    await start(1, {}, { followRedirects: true });
    answer = (_, path) =>
      path === "/from" ? { status: 302, headers: { location: "/to" } } : undefined;
    const { cookies } = await ask("a=1; fetchway=AAAAAAAAAAAAAAAAAAAAAA", "/from");
    expect(cookies).toEqual([expect.stringMatching(COOKIE)]);
    expect(seen.map(({ cookie }) => cookie)).toEqual(["a=1", "a=1"]);
  });

  test("a 101 sets the cookie, and later upgrades with the cookie go to the client's upstream", async () => {
    await start(3);
    const upgrade = async (cookie: string): Promise<string> => {
      const socket = connect(Number(new URL(origin).port), "127.0.0.1");
      socket.write(
        `GET /ws HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: test\r\nCookie: ${cookie}\r\n\r\n`,
      );
      let text = "";
      socket.on("data", (data: Buffer) => (text += data.toString("latin1")));
      await once(socket, "close");
      return text;
    };
    const first = await upgrade("a=1");
    // A 101 needs no Cache-Control, because caches do not store it.
    expect(first).not.toMatch(/cache-control/i);
    const [, own = ""] = /^set-cookie: (\S+);/im.exec(first) ?? [];
    expect(own).toMatch(/^fetchway=/);
    expect(seen.at(-1)?.cookie).toBe("a=1");
    const { index } = await ask(own);
    for (let n = 0; n < 5; n++) {
      const text = await upgrade(own);
      expect(text).toMatch(/^HTTP\/1\.1 101 /);
      expect(text.endsWith(`\r\n\r\n${index}`)).toBe(true);
      expect(text).not.toMatch(/set-cookie|cache-control/i);
    }
  });

  test("the cookie works over HTTP/2, where each cookie may be in a separate field", async () => {
    await start(3);
    const cookie = await cookieOf(2);
    const server = createHttp2Server((req, res) => proxy.nodeHandler(req, res));
    const client = connectHttp2(`http://127.0.0.1:${await listen(server)}`);
    const askHttp2 = async (...cookies: string[]): Promise<[string, unknown]> => {
      const stream = client.request({
        ":path": "/",
        ...(cookies.length > 0 && { cookie: cookies }),
      });
      const [headers] = (await once(stream, "response")) as [Record<string, unknown>];
      return [String(Buffer.concat((await stream.toArray()) as Buffer[])), headers["set-cookie"]];
    };
    const [, set] = await askHttp2("a=1");
    expect(set).toEqual([expect.stringMatching(COOKIE)]);
    for (let n = 0; n < 5; n++) {
      expect(await askHttp2("a=1", cookie, "b=2")).toEqual(["2", undefined]);
      expect(seen.at(-1)?.cookie).toBe("a=1; b=2");
    }
    client.close();
    server.close();
  });

  test("the cookie has a generated secret if none is set, and `onSecretMade` reports the secret once", async () => {
    const made: string[] = [];
    await start(2, { cookie: { onSecretMade: (secret) => void made.push(secret) } });
    expect(made).toEqual([]);
    const { cookies, index } = await ask();
    for (let n = 0; n < 5; n++) expect((await ask(sendBack(cookies))).index).toBe(index);
    expect(made).toEqual([expect.stringMatching(/^[\w-]{43}$/)]);
    proxy.destroy();
    open(urls, { policy: "sticky", cookie: { secret: made[0] as string } });
    expect(await ask(sendBack(cookies))).toMatchObject({ index, cookies: [] });
  });
});

describe("consistentHash", () => {
  /** Makes each upstream begin sessions, with a cookie. `lost` counts the requests with a session of another upstream. */
  function keepSessions(): { lost: number } {
    const sessions = new Map<string, number>();
    const counts = { lost: 0 };
    answer = (index) => {
      const id = /session=(\w+)/.exec(seen.at(-1)?.cookie ?? "")?.[1];
      if (id !== undefined) {
        if (sessions.get(id) !== index) counts.lost++;
        return undefined;
      }
      const made = `s${sessions.size}x${Math.random().toString(36).slice(2)}`;
      sessions.set(made, index);
      return { headers: { "set-cookie": `session=${made}; Path=/` } };
    };
    return counts;
  }

  test("with `sticky`, no session of the app is lost, and clients without a key are spread", async () => {
    await start(3, { policy: consistentHash(byCookie("session"), { sticky: true }) });
    const counts = keepSessions();
    const indexes = new Set<string>();
    for (let client = 0; client < 50; client++) {
      const { cookies, index } = await ask();
      indexes.add(index);
      await ask(sendBack(cookies));
    }
    expect(counts.lost).toBe(0);
    expect(indexes.size).toBe(3);
  });

  test.each([true, false])(
    "with `next: sticky()` and `sticky: %s`, a client without a key stays with its upstream",
    async (isSticky) => {
      const next = sticky({ next: "round_robin" });
      await start(2, { policy: consistentHash(byHeader("x-user"), { sticky: isSticky, next }) });
      const { index, cookies } = await ask();
      expect(cookies).toEqual([expect.stringMatching(COOKIE)]);
      for (let n = 0; n < 3; n++) expect((await ask(sendBack(cookies))).index).toBe(index);
      const ofUser = { headers: { "x-user": "u1" } };
      expect((await ask(undefined, "/", ofUser)).cookies).toEqual([]);
    },
  );

  test("requests that have a key get no cookie of the proxy", async () => {
    await start(3, { policy: consistentHash(byHeader("x-user"), { sticky: true }) });
    const ofUser = { headers: { "x-user": "u1" } };
    const { index, cookies, control } = await ask(undefined, "/", ofUser);
    expect([cookies, control]).toEqual([[], null]);
    for (let n = 0; n < 5; n++) expect((await ask(undefined, "/", ofUser)).index).toBe(index);
    const without = await ask();
    expect(without.cookies).toEqual([expect.stringMatching(COOKIE)]);
    // A cookie of a removed upstream is replaced even if the request has a key, because the upstream could be added again.
    await target.remove(urls[Number(without.index)] as string);
    const moved = await ask(sendBack(without.cookies), "/", ofUser);
    expect(moved.cookies).toEqual([expect.stringMatching(COOKIE)]);
    expect(moved.cookies).not.toEqual(without.cookies);
  });

  test("with `next: false`, all requests without a key go to the same upstream, and no cookie is set", async () => {
    const policy = consistentHash(byCookie("session"), { sticky: true, next: false });
    await start(3, { policy });
    const outcomes = await Promise.all(Array.from({ length: 20 }, () => ask()));
    expect(new Set(outcomes.map(({ index }) => index)).size).toBe(1);
    expect(outcomes.flatMap(({ cookies }) => cookies)).toEqual([]);
  });

  test("without `sticky`, the next policy chooses for requests without a key, and no cookie is set", async () => {
    await start(3, { policy: consistentHash(byCookie("session"), { next: "round_robin" }) });
    const outcomes = [await ask(), await ask(), await ask()];
    expect(outcomes.map(({ index }) => index).toSorted()).toEqual(["0", "1", "2"]);
    expect(outcomes.flatMap(({ cookies }) => cookies)).toEqual([]);
  });
});
