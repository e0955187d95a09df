/** Each request takes one place at an upstream, and always gives it back. */
import { describe, expect, test } from "vitest";
import { BytesBody } from "../../../src/body/bytes.ts";
import { ResponseBody } from "../../../src/body/responsebody.ts";
import { StreamBody } from "../../../src/body/stream.ts";
import { ProxyError } from "../../../src/error.ts";
import type { Scope } from "../../../src/transport/scope.ts";
import type { Interceptor, Transport } from "../../../src/transport/port.ts";
import { createProxy, type CreateProxyOptions } from "../../../runtimes/fetch.ts";
import type { UpstreamRequest, UpstreamResponse } from "../../../src/transport/message.ts";
import {
  balance,
  type BalanceOptions,
  type Balancer,
  choose,
} from "../../../src/upstreams/balance.ts";
import type { Result, Upstreams } from "../../../src/upstreams/upstreams.ts";
import { until } from "../../helpers/wait.ts";

type Answer = (request: UpstreamRequest, scope: Scope) => Promise<UpstreamResponse>;

const FULL = { decodes: [], host: true, unixSocket: true, tls: true, upgrade: true, http2: true };

function transportOf(send: Answer, capabilities: Transport["capabilities"] = FULL): Transport {
  return { name: "fake", capabilities, send };
}

function respond(status = 200, text = "ok"): UpstreamResponse {
  const body = new BytesBody(new TextEncoder().encode(text));
  return { status, statusText: "", headers: [], body };
}

/** An upstream that never responds: the attempt ends only when it is aborted. */
const hang: Answer = (_, scope) => new Promise((_resolve, fail) => scope.onAbort({ fail }));

/** Returns an upstream that responds after a time, unless the attempt is aborted before. */
function answerAfter(milliseconds: number): Answer {
  return async (_, scope) => {
    let stop: ((error: Error) => void) | undefined;
    scope.onAbort({ fail: (error) => stop?.(error) });
    await new Promise((resolve, reject) => {
      stop = reject;
      setTimeout(resolve, milliseconds);
    });
    return respond();
  };
}

const HOSTS = ["http://a.test", "http://b.test"];

interface Setup {
  target: Balancer;
  ask: (init?: RequestInit, path?: string) => Promise<Response>;
  sent: UpstreamRequest[];
}

function setUp(
  answer: Answer,
  options: Partial<CreateProxyOptions> = {},
  balancing: BalanceOptions = {},
  hosts: readonly (string | { url: string; socketPath: string })[] = HOSTS,
): Setup {
  const target = balance(hosts, { policy: "round_robin", ...balancing });
  const sent: UpstreamRequest[] = [];
  const transport = transportOf((request, scope) => {
    sent.push(request);
    return answer(request, scope);
  });
  const proxy = createProxy({ transport, ...options, target });
  const ask: Setup["ask"] = (init, path = "/") =>
    proxy.fetch(new Request(`http://proxy.test${path}`, init));
  return { target, ask, sent };
}

/** Expects that no place is taken, neither in total nor at any upstream. */
function expectIdle(target: Balancer): void {
  expect(target.active).toBe(0);
  expect(target.states().map(({ active }) => active)).toEqual(target.states().map(() => 0));
}

const ok: Answer = async () => respond();

describe("a place at an upstream", () => {
  test.each<[string, Partial<CreateProxyOptions>, RequestInit?, string?]>([
    ["onRequest responds", { onRequest: () => new Response("own") }],
    [
      "onRequest throws",
      {
        onRequest: () => {
          throw new Error("oops");
        },
      },
    ],
    ["onRequest sets a wrong path", { onRequest: (draft) => void (draft.path = "no path") }],
    [
      "pathRewrite throws",
      {
        pathRewrite: () => {
          throw new Error("oops");
        },
      },
    ],
    ["pathRewrite leaves the base path", { pathRewrite: () => "/../x" }],
    ["the body is above bodyLimit", { bodyLimit: 1 }, { method: "POST", body: "too much" }],
    [
      "an interceptor responds",
      { interceptors: { request: [() => () => Promise.resolve(respond())] } },
    ],
    [
      "an interceptor throws",
      { interceptors: { request: [() => () => Promise.reject(new Error("oops"))] } },
    ],
    ["onResponse responds", { onResponse: () => new Response("own") }],
    [
      "onResponse throws",
      {
        onResponse: () => {
          throw new Error("oops");
        },
      },
    ],
    [
      "the proxy answers OPTIONS itself",
      {},
      { method: "OPTIONS", headers: { "max-forwards": "0" } },
    ],
    ["the response is one to HEAD", {}, { method: "HEAD" }],
  ])("is given back if %s", async (_, options, init, path) => {
    const { target, ask } = setUp(ok, options);
    await ask(init, path).then(
      (response) => response.text(),
      () => {},
    );
    expectIdle(target);
  });

  test("is given back with the error `the request was not sent` if onRequest responds", async () => {
    const results: Result[] = [];
    const target: Upstreams = {
      choose,
      pick: () => "http://a.test",
      report: (result) => void results.push(result),
    };
    const onRequest = (): Response => new Response("own");
    const proxy = createProxy({ target, transport: transportOf(ok), onRequest });
    await proxy.fetch(new Request("http://proxy.test/"));
    expect(results).toHaveLength(1);
    const error = { code: "http_request_error", message: "the request was not sent" };
    expect(results[0]).toMatchObject({ isSent: false, isOver: true, status: undefined, error });
  });

  test("is given back if the transport does not support the upstream's Unix socket", async () => {
    const transport = transportOf(ok, { ...FULL, unixSocket: false });
    const socket = { url: "http://c.test", socketPath: "/c" };
    expect(() => setUp(ok, { transport }, {}, [socket])).toThrow("unix sockets");
    // An upstream that is added later is checked by the first request to it.
    const { target, ask } = setUp(ok, { transport }, { policy: "first" });
    target.add(socket);
    await Promise.all(HOSTS.map((each) => target.remove(each)));
    await expect(ask()).rejects.toThrow("unix sockets");
    expectIdle(target);
  });

  test("is given back if the client disconnects before or during the response", async () => {
    const { target, ask } = setUp(hang);
    const leaving = new AbortController();
    const asked = ask({ signal: leaving.signal });
    expect(target.active).toBe(1);
    leaving.abort();
    expect((await asked).status).toBe(499);
    expectIdle(target);
    const endless = setUp(async () => ({
      ...respond(),
      body: new StreamBody(new ReadableStream({ pull: (to) => to.enqueue(new Uint8Array(9)) })),
    }));
    const response = await endless.ask();
    expect(endless.target.active).toBe(1);
    await response.body?.cancel();
    expectIdle(endless.target);
  });

  test.each([2, 1])(
    "is given back with the response headers if all bytes have arrived: %i of 2",
    async (arrived) => {
      const places: number[] = [];
      const note: Interceptor = (next) => async (request, scope) => {
        const response = await next(request, scope);
        places.push(target.active);
        return response;
      };
      let body: ResponseBody | undefined;
      const inlet = { pause() {}, resume() {}, cancel() {} };
      const answer: Answer = async (_, scope) => {
        body = new ResponseBody(scope, inlet, 2);
        body.push(new Uint8Array(arrived));
        return { ...respond(), body };
      };
      const { target, ask } = setUp(answer, { interceptors: { request: [note] } });
      const response = await ask();
      expect(places).toEqual([arrived === 2 ? 0 : 1]);
      if (arrived < 2) body?.push(new Uint8Array(1));
      body?.end();
      expect((await response.bytes()).length).toBe(2);
      expectIdle(target);
    },
  );

  test("is given back if a redirect is followed", async () => {
    const { target, ask, sent } = setUp(
      async ({ path }) =>
        path === "/" ? { ...respond(302), headers: ["Location", "/next"] } : respond(),
      { followRedirects: true },
    );
    expect(await (await ask()).text()).toBe("ok");
    expect(sent.map(({ path }) => path)).toEqual(["/", "/next"]);
    expectIdle(target);
  });

  test("is given back by each attempt if an interceptor sends a request twice", async () => {
    const twice: Interceptor = (next) => async (request, scope) => {
      const first = await next(request, scope);
      first.body?.cancel();
      return next(request, scope.again());
    };
    const { target, ask, sent } = setUp(ok, { interceptors: { request: [twice] } });
    expect(await (await ask()).text()).toBe("ok");
    expect(sent.map(({ upstream }) => upstream.origin)).toEqual(HOSTS);
    expectIdle(target);
  });

  test("is given back when the tunnel of an upgrade is closed", async () => {
    let closed = 0;
    const tunnel = {
      attach() {},
      write: () => true,
      pause() {},
      resume() {},
      end() {},
      destroy: () => void closed++,
    };
    const switched: UpstreamResponse = {
      status: 101,
      statusText: "",
      headers: ["Connection", "Upgrade", "Upgrade", "websocket"],
      body: null,
      tunnel,
    };
    const { target, ask } = setUp(async () => switched, {
      onResponse: () => new Response("own"),
    });
    const headers = { connection: "Upgrade", upgrade: "websocket" };
    await (await ask({ headers })).text();
    expectIdle(target);
  });

  test("is not taken at a target that the app implements without `choose`, because that target is refused", async () => {
    const target = { pick: () => "http://a.test" } as unknown as Upstreams;
    const fix = "needs `choose` of fetchway/upstreams";
    expect(() => createProxy({ target })).toThrow(fix);
    const proxy = createProxy({ target: () => target });
    await expect(proxy.fetch(new Request("http://proxy.test/"))).rejects.toThrow(fix);
  });

  test("is given back if a target that the app implements picks an upstream with another base path", async () => {
    const results: Result[] = [];
    const target: Upstreams = {
      choose,
      pick: (_, tried) => (tried.length === 0 ? "http://a.test" : "http://a.test/base"),
      report: (result) => void results.push(result),
    };
    const transport = transportOf(() => Promise.reject(new ProxyError("connection_refused")));
    const proxy = createProxy({ target, transport });
    await expect(proxy.fetch(new Request("http://proxy.test/"))).rejects.toThrow("base path");
    expect(results.map(({ isOver }) => isOver)).toEqual([true, true]);
  });

  test("is given back if a policy throws when it is asked for another upstream after a status of `retry.statusCodes`", async () => {
    let isCancelled = false;
    const stream = new ReadableStream<Uint8Array>({ cancel: () => void (isCancelled = true) });
    const answer: Answer = async () => ({ ...respond(503), body: new StreamBody(stream) });
    let picks = 0;
    const pick = (able: readonly object[]) => {
      if (++picks > 1) throw new Error("policy");
      return able[0] as never;
    };
    const retry = { statusCodes: [503] };
    const { target, ask } = setUp(answer, { retry }, { policy: { pick } });
    await expect(ask()).rejects.toThrow("policy");
    expect(isCancelled).toBe(true);
    expectIdle(target);
  });
});

describe("requests that wait", () => {
  test("a request whose client disconnects leaves the queue", async () => {
    const { target, ask, sent } = setUp(hang, {}, { maxRequests: 1, maxQueue: 2 }, [
      "http://a.test",
    ]);
    const first = new AbortController();
    const running = ask({ signal: first.signal });
    const leaving = new AbortController();
    const left = [1, 2].map(() => ask({ signal: leaving.signal }));
    leaving.abort();
    for (const each of left) expect((await each).status).toBe(499);
    // The requests and their timers have been removed immediately.
    expect(target.waiting).toBe(0);
    const second = new AbortController();
    const waiting = [1, 2].map(() => ask({ signal: second.signal }));
    expect((await ask()).status).toBe(503);
    first.abort();
    await running;
    await until(() => sent.length === 2, "the next request");
    second.abort();
    await Promise.all(waiting);
    expectIdle(target);
  });

  test("a request whose first attempt is slow waits for another upstream, and leaves the queue when that attempt is answered", async () => {
    const gates = new Map<string, () => void>();
    const { target, ask } = setUp(
      async ({ method }, scope) => {
        await new Promise<void>((resolve, fail) => {
          gates.set(method, resolve);
          scope.onAbort({ fail });
        });
        return respond();
      },
      { attemptTimeout: 10 },
      { maxRequests: 1 },
    );
    // A POST is not sent again, so it keeps its upstream.
    const busy = ask({ method: "POST", body: "x" });
    await until(() => gates.has("POST"), "the first request");
    const slow = ask();
    await until(() => target.waiting === 1, "the wait for the other upstream");
    gates.get("GET")?.();
    expect(await (await slow).text()).toBe("ok");
    expect([target.waiting, target.active]).toEqual([0, 1]);
    gates.get("POST")?.();
    await (await busy).text();
    expectIdle(target);
  });

  test("waiting requests get 503 if the only upstream is removed", async () => {
    const { target, ask } = setUp(hang, {}, { maxRequests: 1 }, ["http://a.test"]);
    const leaving = new AbortController();
    const running = ask({ signal: leaving.signal });
    const waiting = ask();
    const removing = target.remove("http://a.test");
    expect((await waiting).status).toBe(503);
    leaving.abort();
    await running;
    await removing;
    expect(target.states()).toEqual([]);
  });

  test("a request whose first attempt has failed is sent to another upstream when that one has a place", async () => {
    const gate: { open?: () => void } = {};
    const { target, ask } = setUp(
      async ({ upstream, path }) => {
        if (path === "/hold") await new Promise<void>((resolve) => (gate.open = resolve));
        else if (upstream.host === "b.test") throw new ProxyError("connection_refused");
        return respond();
      },
      {},
      { maxRequests: 1 },
    );
    const held = ask({}, "/hold");
    const failed = ask({}, "/");
    await until(() => gate.open !== undefined, "the first request");
    gate.open?.();
    expect(await (await held).text()).toBe("ok");
    expect(await (await failed).text()).toBe("ok");
    expectIdle(target);
  });

  test("a request gives its own place back before it waits for another upstream, so that two requests cannot block each other", async () => {
    const { target, ask } = setUp(
      async () => {
        await new Promise((resolve) => setTimeout(resolve, 5));
        return respond(500);
      },
      { retry: { statusCodes: [500] } },
      { maxRequests: 1, outliers: false },
    );
    const responses = await Promise.all([ask(), ask()]);
    expect(responses.map(({ status }) => status)).toEqual([500, 500]);
    for (const response of responses) await response.text();
    expectIdle(target);
  });

  test("waiting requests fail with the exception that a policy throws", async () => {
    let isBroken = false;
    const pick = (able: readonly { active: number }[]) => {
      if (isBroken) throw new Error("policy");
      return able[0] as never;
    };
    const { ask } = setUp(hang, {}, { maxRequests: 1, policy: { pick } }, ["http://a.test"]);
    const leaving = new AbortController();
    const running = ask({ signal: leaving.signal });
    const waiting = ask();
    isBroken = true;
    leaving.abort();
    expect((await running).status).toBe(499);
    await expect(waiting).rejects.toThrow("policy");
  });
});

describe("ejection by faults of clients", () => {
  const balancing = { outliers: { consecutiveFailures: 1 } };

  /** Reads the request's body, and never responds. */
  const readAndHang: Answer = async ({ body }, scope) => {
    void body?.pipeTo({ write: () => true, onDrain() {}, end() {}, fail() {} });
    return hang({} as UpstreamRequest, scope);
  };

  test("uploads that are never completed eject no upstream", async () => {
    const { target, ask } = setUp(readAndHang, { timeout: 30 }, balancing);
    const body = new ReadableStream({ start: (to) => to.enqueue(new Uint8Array(9)) });
    const init = { method: "POST", body, duplex: "half" } as RequestInit;
    expect((await ask(init)).status).toBe(504);
    expect(target.states().map(({ state }) => state)).toEqual(["up", "up"]);
    expectIdle(target);
  });

  test.each([
    ["an upload that is never completed", true, false],
    ["a request without a body", false, true],
  ])(
    "a target that the app implements gets the error that the client gets, for %s",
    async (_, hasBody, isUploaded) => {
      const results: Result[] = [];
      const target: Upstreams = {
        choose,
        pick: () => "http://a.test",
        report: (result) => void results.push(result),
      };
      const proxy = createProxy({
        target,
        transport: transportOf(hang),
        timeout: 300,
        retry: false,
      });
      const body = new ReadableStream({ start: (to) => to.enqueue(new Uint8Array(9)) });
      const init = hasBody ? ({ method: "POST", body, duplex: "half" } as RequestInit) : {};
      const { status } = await proxy.fetch(new Request("http://proxy.test/", init));
      expect(status).toBe(504);
      expect(results).toHaveLength(1);
      expect(results[0]).toMatchObject({
        isUploaded,
        error: { code: "http_response_timeout", status: 504 },
      });
    },
  );

  test("an upstream that hangs after the whole upload is ejected", async () => {
    const { target, ask } = setUp(readAndHang, { timeout: 30 }, balancing);
    const body = new ReadableStream({
      start(to) {
        to.enqueue(new Uint8Array(9));
        setTimeout(() => to.close(), 5);
      },
    });
    expect((await ask({ method: "POST", body, duplex: "half" } as RequestInit)).status).toBe(504);
    expect(target.states()[0]?.state).toBe("ejected");
  });

  test("requests that the transport refuses eject no upstream", async () => {
    const { target, ask } = setUp(
      () => Promise.reject(new ProxyError("http_request_error", { status: 501 })),
      {},
      balancing,
    );
    expect((await ask()).status).toBe(501);
    expect(target.states()[0]?.state).toBe("up");
  });

  test("exceptions of an interceptor eject no upstream", async () => {
    const { target, ask } = setUp(
      ok,
      { interceptors: { attempt: [() => () => Promise.reject(new TypeError("oops"))] } },
      balancing,
    );
    await ask().catch(() => {});
    expect(target.states()[0]?.state).toBe("up");
    expectIdle(target);
  });
});

describe("attempts at upstreams", () => {
  const SENT = ["connection_terminated", "tls_protocol_error", "tls_alert_received"] as const;
  const UNSENT = ["connection_refused", "connection_timeout", "dns_error", "tls_certificate_error"];
  const failing =
    (code: string): Answer =>
    async ({ upstream }) => {
      if (upstream.host === "a.test") throw new ProxyError(code as "connection_refused");
      return respond();
    };
  const post = { method: "POST", body: "x" };

  test.each(SENT)(
    "after %s, the failed request is sent to another upstream, unless it is a POST",
    async (code) => {
      const { ask } = setUp(failing(code), {}, { policy: "first" });
      expect((await ask()).status).toBe(200);
      expect((await ask(post)).status).toBe(502);
    },
  );

  test.each(UNSENT)(
    "after %s, the failed request is sent to another upstream, even if it is a POST",
    async (code) => {
      const { ask } = setUp(failing(code), {}, { policy: "first" });
      expect((await ask()).status).toBe(200);
      expect((await ask(post)).status).toBe(200);
    },
  );

  test("each attempt has the Host of its own upstream, and Location is rewritten for the upstream that answers", async () => {
    const { ask, sent } = setUp(
      async ({ upstream }) => {
        if (upstream.host === "a.test") throw new ProxyError("connection_refused");
        const headers = ["Location", "http://b.test/new", "Content-Location", "http://a.test/old"];
        return { ...respond(302), headers };
      },
      {},
      { policy: "first" },
    );
    const response = await ask({ headers: { cookie: "session=1" } });
    expect(sent.map(({ upstream, host }) => host ?? upstream.host)).toEqual(["a.test", "b.test"]);
    for (const { headers } of sent) {
      expect(headers.join()).not.toMatch(/[ab]\.test/);
      expect(headers).toContain("session=1");
    }
    expect(response.headers.get("location")).toBe("/new");
    // The proxy sets no cookie to find the upstream again.
    expect(response.headers.get("set-cookie")).toBeNull();
  });

  test("a redirect is followed at the upstream that has answered, and Location of the last response is rewritten for it", async () => {
    const { target, ask, sent } = setUp(
      async ({ upstream, path }) => {
        if (upstream.host === "a.test") throw new ProxyError("connection_refused");
        if (path === "/absolute") return { ...respond(302), headers: ["Location", "/relative"] };
        if (path === "/relative")
          return { ...respond(201), headers: ["Location", "http://b.test/new"] };
        return { ...respond(302), headers: ["Location", "http://b.test/absolute"] };
      },
      { followRedirects: true },
      { policy: "first" },
    );
    const response = await ask();
    expect(sent.map(({ upstream, path }) => upstream.origin + path)).toEqual([
      "http://a.test/",
      "http://b.test/",
      "http://b.test/absolute",
      "http://b.test/relative",
    ]);
    expect([response.status, response.headers.get("location")]).toEqual([201, "/new"]);
    await response.text();
    expectIdle(target);
  });

  test("a redirect of another upstream to the same URL is a loop, and goes to the client", async () => {
    const { ask, sent } = setUp(
      async ({ upstream }) => {
        if (upstream.host === "a.test") throw new ProxyError("connection_refused");
        return { ...respond(302), headers: ["Location", "/"] };
      },
      { followRedirects: true },
      { policy: "first" },
    );
    expect((await ask()).status).toBe(302);
    expect(sent).toHaveLength(2);
  });

  test("a request has no more attempts than retry allows", async () => {
    const { ask, sent } = setUp(async () => respond(500), {
      retry: { attempts: 1, statusCodes: [500] },
    });
    expect((await ask()).status).toBe(500);
    expect(sent.map(({ upstream }) => upstream.origin)).toEqual(HOSTS);
  });

  test("an attempt has no attemptTimeout if no other attempt can follow", async () => {
    const slow = answerAfter(80);
    for (const target of ["http://a.test", balance(HOSTS)]) {
      let attempts = 0;
      // The first attempt gets no answer: on a busy machine, a late one could arrive before the answer to the second attempt.
      const transport = transportOf((request, scope) =>
        attempts++ === 0 ? hang(request, scope) : slow(request, scope),
      );
      const proxy = createProxy({ target, transport, attemptTimeout: 30 });
      expect((await proxy.fetch(new Request("http://proxy.test/"))).status).toBe(200);
      expect(attempts).toBe(2);
    }
  });

  test("an attempt over attemptTimeout continues if the retry budget is used up, or if no other upstream is left", async () => {
    const slow = answerAfter(60);
    const options = { attemptTimeout: 20 };
    const spent = setUp(slow, options, { retryBudget: { ratio: 0, perSecond: 0 } });
    expect((await spent.ask()).status).toBe(200);
    expect(spent.sent).toHaveLength(1);
    const single = setUp(slow, options, {}, ["http://a.test"]);
    expect((await single.ask()).status).toBe(200);
    expect(single.sent).toHaveLength(1);
    expectIdle(single.target);
  });

  test("attempts wait for `delay`, and give their place back if the client disconnects meanwhile", async () => {
    const { target, ask, sent } = setUp(
      () => Promise.reject(new ProxyError("connection_refused")),
      { retry: { delay: 60_000 } },
    );
    const leaving = new AbortController();
    const asked = ask({ signal: leaving.signal });
    await until(() => target.states()[1]?.active === 1, "the place of the second attempt");
    leaving.abort();
    expect((await asked).status).toBe(499);
    expect(sent).toHaveLength(1);
    expectIdle(target);
  });
});
