/**
 * The option `wait`: which requests wait for an upstream, when they are sent, and how a wait ends. A look is a waiting request
 * that is sent to find out whether the upstream is back.
 */
import { afterEach, beforeEach, describe, expect, test, vi } from "vitest";
import { createProxy as createFetchProxy } from "../../../runtimes/fetch.ts";
import { BytesBody } from "../../../src/body/bytes.ts";
import { ResponseBody } from "../../../src/body/responsebody.ts";
import { StreamBody } from "../../../src/body/stream.ts";
import { UnframedBody } from "../../../src/body/unframed.ts";
import { ProxyError, type ProxyErrorCode } from "../../../src/error.ts";
import { holdRequests } from "../../../src/exchange/wait.ts";
import { describeWait } from "../../../src/explain/waits.ts";
import type { FetchLike } from "../../../src/fetch/fetchtransport.ts";
import type { RequestEnd, WaitChange } from "../../../src/options/observationoptions.ts";
import type { ProxyOptions } from "../../../src/options/proxyoptions.ts";
import type { Exchange } from "../../../src/pipeline/exchange.ts";
import { forward, forwardAgain } from "../../../src/pipeline/pipeline.ts";
import { compile, type Plan } from "../../../src/plan.ts";
import type { Incoming } from "../../../src/request/incoming.ts";
import { parseTarget } from "../../../src/target/target.ts";
import { balance } from "../../../src/upstreams/balance.ts";
import type { Member } from "../../../src/upstreams/policy.ts";
import type { Target } from "../../../src/upstreams/upstreams.ts";
import type { Interceptor } from "../../../src/transport/port.ts";
import {
  bytes,
  type FakeIncoming,
  fakeIncoming,
  fakeResponse,
  fakeScope,
  FakeTransport,
  type Given,
  respond,
  stale,
  streamOf,
  TARGET,
  to,
} from "../../helpers/fakes.ts";
import { FakeSink } from "../../helpers/sink.ts";

beforeEach(() => void vi.useFakeTimers({ toFake: ["setTimeout", "clearTimeout", "performance"] }));
afterEach(() => void vi.useRealTimers());

const WAIT = 5_000;

function failWith(code: ProxyErrorCode, cause?: unknown): () => never {
  return () => {
    throw new ProxyError(code, { cause });
  };
}
const refuse = failWith("connection_refused");
const answer = (): ReturnType<typeof fakeResponse> => fakeResponse();
/** An upstream that never answers: the request ends only when its exchange is aborted. */
const hang: FakeTransport["answer"] = (_, scope) =>
  new Promise((_resolve, fail) => scope.onAbort({ fail }));

interface Sent {
  readonly incoming: FakeIncoming;
  /** The status of the response; undefined while there is none. */
  status: number | undefined;
  response: Response | undefined;
}

interface Setup {
  readonly transport: FakeTransport;
  readonly plan: Plan;
  send(incoming?: Given<Incoming>): Promise<Sent>;
}

function setUp(
  upstream: FakeTransport["answer"],
  options: ProxyOptions = {},
  target: Target = TARGET,
): Setup {
  const transport = new FakeTransport(upstream);
  const plan = compile({ wait: WAIT, ...options }, () => transport, { holdRequests });
  if (target === TARGET) plan.held?.setFixedUpstream(parseTarget(TARGET));
  return {
    transport,
    plan,
    async send(given = {}) {
      const incoming = fakeIncoming(given);
      const sent: Sent = { incoming, status: undefined, response: undefined };
      forward(incoming, target, plan, undefined, respond).then(
        (response) => Object.assign(sent, { response, status: response.status }),
        (thrown: unknown) => expect.fail(String(thrown)),
      );
      await vi.advanceTimersByTimeAsync(0);
      return sent;
    },
  };
}

/** Expects that no request waits, and that no timer and no listener is left. */
async function expectIdle({ plan }: Setup, ...all: Sent[]): Promise<void> {
  expect(plan.held?.size).toBe(0);
  expect(all.map(({ incoming }) => incoming.listeners.size)).toEqual(all.map(() => 0));
  // The timer that checks for waiting requests runs for another moment.
  await vi.advanceTimersByTimeAsync(500);
  expect(vi.getTimerCount()).toBe(0);
}

describe("an upstream that refuses connections", () => {
  test.each(["GET", "POST", "DELETE"])("a %s waits until the upstream is back", async (method) => {
    const setup = setUp(refuse);
    const body = new StreamBody(streamOf(["a", "b"]));
    const sent = await setup.send({ method, body: method === "POST" ? body : null });
    expect([sent.status, setup.plan.held?.size]).toEqual([undefined, 1]);
    if (method === "POST") expect(body.isUntouched).toBe(true);
    setup.transport.answer = async ({ body: given }) =>
      fakeResponse({ body: new StreamBody((given ?? body).stream()) });
    await vi.advanceTimersByTimeAsync(50);
    expect(sent.status).toBe(200);
    if (method === "POST") expect(await sent.response?.text()).toBe("ab");
    await expectIdle(setup, sent);
  });

  test("an upstream that refuses connections gets one waiting request at a time, after growing pauses", async () => {
    const setup = setUp(refuse, { retry: false });
    const all = [await setup.send(), await setup.send(), await setup.send({ method: "POST" })];
    expect(setup.transport.hops).toHaveLength(1);
    const looks: number[] = [];
    for (let i = 0; i < 8; i++) {
      await vi.advanceTimersByTimeAsync(500);
      looks.push(setup.transport.hops.length - 1);
    }
    // Looks are sent after 50, 150, 350 and 600 ms, and then every 250 ms.
    expect(looks).toEqual([3, 5, 7, 9, 11, 13, 15, 17]);
    expect(setup.plan.held?.size).toBe(3);
    await vi.advanceTimersByTimeAsync(1_000);
    expect(all.map(({ status }) => status)).toEqual([503, 503, 503]);
    expect(all[0]?.response?.headers.get("retry-after")).toBe("1");
    await expectIdle(setup, ...all);
  });

  test("if the connection of a look breaks, the upstream does not count as back, and the other requests keep waiting", async () => {
    const setup = setUp(refuse, { retry: false });
    const all = [await setup.send(), await setup.send({ method: "POST" }), await setup.send()];
    setup.transport.answer = failWith("connection_terminated");
    await vi.advanceTimersByTimeAsync(100);
    setup.transport.answer = refuse;
    const ended = all.filter(({ status }) => status !== undefined);
    expect(ended.map(({ status }) => status)).toEqual([502]);
    expect(setup.plan.held?.size).toBe(2);
    await vi.advanceTimersByTimeAsync(WAIT);
    await expectIdle(setup, ...all);
  });

  test.each(["connection_timeout", "tls_certificate_error", "destination_ip_unroutable"] as const)(
    "if a look fails without a connection (%s), the upstream does not count as back, and the next waiting request is a look",
    async (code) => {
      const states: string[] = [];
      const setup = setUp(refuse, { onWait: ({ state }) => void states.push(state) });
      const all = [await setup.send(), await setup.send(), await setup.send()];
      setup.transport.answer = failWith(code);
      await vi.advanceTimersByTimeAsync(50);
      expect(all.map(({ status }) => status)).not.toContain(undefined);
      expect(states).toEqual(["waiting", "over"]);
      await expectIdle(setup, ...all);
    },
  );

  test("an upstream that is back gets the waiting requests gradually: after each response, two more are sent", async () => {
    const setup = setUp(refuse);
    const all: Sent[] = [];
    for (let i = 0; i < 20; i++) all.push(await setup.send());
    setup.transport.hops.length = 0;
    const answers: (() => void)[] = [];
    setup.transport.answer = () =>
      new Promise((resolve) => answers.push(() => resolve(fakeResponse())));
    await vi.advanceTimersByTimeAsync(50);
    const running: number[] = [];
    while (answers.length > 0) {
      running.push(answers.length);
      for (const each of answers.splice(0)) each();
      await vi.advanceTimersByTimeAsync(0);
    }
    expect(running).toEqual([1, 2, 4, 8, 5]);
    expect(all.map(({ status }) => status)).toEqual(all.map(() => 200));
    await expectIdle(setup, ...all);
    await setup.send();
    expect(setup.transport.hops).toHaveLength(21);
  });

  test("while a look has no response yet, the upstream gets further looks and new requests", async () => {
    const setup = setUp(refuse);
    const [slow, next] = [await setup.send(), await setup.send()];
    setup.transport.answer = hang;
    await vi.advanceTimersByTimeAsync(50);
    setup.transport.answer = answer;
    await vi.advanceTimersByTimeAsync(50);
    expect([slow.status, next.status]).toEqual([undefined, 200]);
    setup.transport.answer = hang;
    const long = [slow];
    for (let i = 0; i < 5; i++) long.push(await setup.send());
    setup.transport.answer = answer;
    const later = await setup.send();
    expect(later.status).toBe(200);
    for (const { incoming } of long) incoming.leave();
    await vi.advanceTimersByTimeAsync(0);
    await expectIdle(setup, ...long, next, later);
  });

  test("when the upstream refuses again, the requests wait again", async () => {
    const setup = setUp(refuse);
    const all = [await setup.send(), await setup.send(), await setup.send(), await setup.send()];
    let count = 0;
    setup.transport.answer = () => (count++ === 0 ? answer() : refuse());
    await vi.advanceTimersByTimeAsync(50);
    expect(all.filter(({ status }) => status === 200)).toHaveLength(1);
    expect(setup.plan.held?.size).toBe(3);
    setup.transport.answer = answer;
    await vi.advanceTimersByTimeAsync(200);
    expect(all.map(({ status }) => status)).toEqual([200, 200, 200, 200]);
    await expectIdle(setup, ...all);
  });

  test("requests wait with `retry: false` as well", async () => {
    const setup = setUp(refuse, { retry: false });
    const sent = await setup.send({ method: "POST" });
    setup.transport.answer = answer;
    await vi.advanceTimersByTimeAsync(50);
    expect(sent.status).toBe(200);
  });

  test("a request that followed a redirect waits, and then only the last URL is requested again", async () => {
    const paths: string[] = [];
    const setup = setUp(
      ({ path }) => {
        paths.push(path);
        if (path === "/") return fakeResponse(to("/next"));
        return paths.length < 5 ? refuse() : answer();
      },
      { followRedirects: true, retry: false },
    );
    const sent = await setup.send();
    await vi.advanceTimersByTimeAsync(1_000);
    expect([sent.status, ...paths]).toEqual([200, "/", "/next", "/next", "/next", "/next"]);
    await expectIdle(setup, sent);
  });
});

describe("the end of a wait", () => {
  test("a client that disconnects frees its place, and its request is not sent", async () => {
    const setup = setUp(refuse);
    const [gone, other] = [await setup.send({ path: "/gone" }), await setup.send()];
    gone.incoming.leave();
    await vi.advanceTimersByTimeAsync(0);
    expect([gone.status, setup.plan.held?.size]).toEqual([499, 1]);
    setup.transport.hops.length = 0;
    setup.transport.answer = answer;
    await vi.advanceTimersByTimeAsync(50);
    expect(other.status).toBe(200);
    expect(setup.transport.hops.map(({ path }) => path)).toEqual(["/"]);
    await expectIdle(setup, gone, other);
  });

  test("if a client disconnects just when its request may be sent, the next waiting request is sent instead", async () => {
    const setup = setUp(refuse);
    const [gone, other] = [await setup.send({ path: "/gone" }), await setup.send()];
    setup.transport.hops.length = 0;
    setup.transport.answer = answer;
    vi.advanceTimersByTime(50);
    gone.incoming.leave();
    await vi.advanceTimersByTimeAsync(0);
    expect([gone.status, other.status, setup.transport.hops.length]).toEqual([499, 200, 1]);
    await expectIdle(setup, gone, other);
  });

  test("no look is sent after the only waiting client has disconnected", async () => {
    const setup = setUp(refuse);
    const gone = await setup.send();
    setup.transport.hops.length = 0;
    gone.incoming.leave();
    await vi.advanceTimersByTimeAsync(WAIT);
    expect(setup.transport.hops).toEqual([]);
    await expectIdle(setup, gone);
  });

  test("if the client of a look disconnects, the next waiting request is sent immediately", async () => {
    const setup = setUp(refuse);
    const [gone, other] = [await setup.send(), await setup.send()];
    setup.transport.answer = hang;
    await vi.advanceTimersByTimeAsync(50);
    setup.transport.answer = answer;
    gone.incoming.leave();
    await vi.advanceTimersByTimeAsync(0);
    expect([gone.status, other.status]).toEqual([499, 200]);
    await expectIdle(setup, gone, other);
  });

  test("a look that is refused only after the time of `wait` has passed ends the wait with 503", async () => {
    const setup = setUp(refuse, { retry: false });
    const sent = await setup.send();
    let end: (() => void) | undefined;
    setup.transport.answer = () =>
      new Promise((_, reject) => {
        end = () => reject(new ProxyError("connection_refused"));
      });
    await vi.advanceTimersByTimeAsync(2 * WAIT);
    expect([sent.status, setup.transport.hops.length]).toEqual([undefined, 2]);
    const started = vi.spyOn(globalThis, "setTimeout");
    end?.();
    await vi.advanceTimersByTimeAsync(1);
    expect([sent.status, setup.transport.hops.length]).toEqual([503, 2]);
    // Node prints a warning for a negative delay.
    expect(started.mock.calls.every(([, delay]) => (delay ?? 0) >= 0)).toBe(true);
    started.mockRestore();
    await expectIdle(setup, sent);
  });

  test("`timeout` does not run while a request waits, and runs once the request is sent", async () => {
    const setup = setUp(refuse, { timeout: 300 });
    const sent = await setup.send();
    await vi.advanceTimersByTimeAsync(2_500);
    expect(sent.status).toBeUndefined();
    setup.transport.answer = hang;
    await vi.advanceTimersByTimeAsync(300);
    expect(sent.status).toBeUndefined();
    await vi.advanceTimersByTimeAsync(150);
    expect(sent.status).toBe(504);
    await expectIdle(setup, sent);
  });

  test.each([
    ["`wait` has passed", async () => void (await vi.advanceTimersByTimeAsync(WAIT)), 503],
    ["the client disconnects", async (_: Setup, { incoming }: Sent) => incoming.leave(), 499],
    ["the proxy is closed", async ({ plan }: Setup) => plan.held?.close(), 503],
  ] as const)("a body that was not sent is cancelled when %s", async (_, end, status) => {
    const setup = setUp(refuse);
    const cancelled = vi.fn();
    const body = new StreamBody(streamOf(["a", "b"], cancelled));
    const sent = await setup.send({ method: "POST", body });
    expect(cancelled).not.toHaveBeenCalled();
    await end(setup, sent);
    await vi.advanceTimersByTimeAsync(0);
    expect([sent.status, cancelled.mock.calls.length]).toEqual([status, 1]);
  });

  test("`close` ends all waits, and later requests do not wait", async () => {
    const setup = setUp(refuse);
    const sent = await setup.send();
    setup.plan.held?.close();
    await vi.advanceTimersByTimeAsync(0);
    expect(sent.status).toBe(503);
    expect((await setup.send()).status).toBe(502);
    await expectIdle(setup, sent);
  });

  test("`close` during a look that is then refused: the request gets 503, like those that still wait", async () => {
    const setup = setUp(refuse);
    const sent = await setup.send();
    let end: (() => void) | undefined;
    setup.transport.answer = () =>
      new Promise((_, reject) => {
        end = () => reject(new ProxyError("connection_refused"));
      });
    await vi.advanceTimersByTimeAsync(50);
    setup.plan.held?.close();
    setup.transport.answer = refuse;
    end?.();
    await vi.advanceTimersByTimeAsync(0);
    expect(sent.status).toBe(503);
    await expectIdle(setup, sent);
  });
});

test("at most 1,024 requests wait: a full queue removes a request of the address with the most requests", async () => {
  const setup = setUp(refuse);
  const many: Sent[] = [];
  for (let i = 0; i < 1_024; i++) many.push(await setup.send({ clientKey: "many" }));
  const other = await setup.send({ clientKey: "other" });
  expect(setup.plan.held?.size).toBe(1_024);
  expect(many.at(-1)?.status).toBe(503);
  expect(many.filter(({ status }) => status !== undefined)).toHaveLength(1);
  expect((await setup.send({ clientKey: "many" })).status).toBe(503);
  setup.transport.hops.length = 0;
  setup.transport.answer = answer;
  await vi.advanceTimersByTimeAsync(50);
  expect(other.status).toBe(200);
  await expectIdle(setup, ...many, other);
});

describe("names", () => {
  const again = failWith("dns_error", Object.assign(new Error(), { code: "EAI_AGAIN" }));
  const missing = failWith("dns_error", Object.assign(new Error(), { code: "ENOTFOUND" }));
  const waits = async (setup: Setup): Promise<boolean> => (await setup.send()).status === undefined;

  test("a request waits if the lookup of the target's fixed name fails temporarily (EAI_AGAIN)", async () => {
    expect(await waits(setUp(again))).toBe(true);
    expect(await waits(setUp(again, {}, balance(["http://a.test"])))).toBe(true);
  });

  test("after ENOTFOUND, a request waits only if the target's fixed name has been found before", async () => {
    for (const target of [TARGET, balance(["http://a.test"])]) {
      const setup = setUp(missing, {}, target);
      expect(await waits(setup)).toBe(false);
      setup.transport.answer = answer;
      expect((await setup.send()).status).toBe(200);
      setup.transport.answer = missing;
      expect(await waits(setup)).toBe(true);
    }
  });

  test("no request waits for the lookup of a name that a target function returns, because a client may choose it", async () => {
    const setup = setUp(answer, {}, () => "http://named.test");
    expect((await setup.send()).status).toBe(200);
    setup.transport.answer = again;
    expect(await waits(setup)).toBe(false);
    setup.transport.answer = refuse;
    expect(await waits(setup)).toBe(true);
  });

  test("no request waits for the lookup of a name in a redirect", async () => {
    const options: ProxyOptions = { followRedirects: true, redirectTargets: "any" };
    const setup = setUp(
      ({ upstream }) =>
        upstream.hostname === "up.test" ? fakeResponse(to("http://other.test/")) : again(),
      options,
    );
    expect((await setup.send()).status).toBe(502);
  });
});

test.each<ProxyErrorCode>([
  "tls_certificate_error",
  "destination_ip_unroutable",
  "destination_ip_prohibited",
  "connection_timeout",
  "connection_limit_reached",
  "destination_unavailable",
])("a request that fails with %s does not wait", async (code) => {
  const setup = setUp(failWith(code));
  const sent = await setup.send();
  expect(sent.status).toBeGreaterThan(500);
  await expectIdle(setup, sent);
});

test("a request does not wait for an upstream to which this process may not connect (EACCES)", async () => {
  const denied = Object.assign(new Error(), { code: "EACCES" });
  expect((await setUp(failWith("connection_refused", denied)).send()).status).toBe(502);
});

test.each<[string, string, Target]>([
  ["to the same upstream", "PUT", TARGET],
  ["to another upstream", "POST", balance(["http://a.test", "http://b.test"])],
])(
  "with the option `fetch`, a body that is still arriving is sent again without a wait: %s",
  async (_, method, target) => {
    const source = new ResponseBody(fakeScope(), { pause() {}, resume() {}, cancel() {} });
    let calls = 0;
    const fetch: FetchLike = async (__, init) => {
      if (++calls === 1) throw new TypeError("failed", { cause: { code: "ECONNREFUSED" } });
      return new Response(await new Response(init.body).text());
    };
    const setup = setUp(answer, { fetch }, target);
    const sent = await setup.send({ method, body: source });
    source.push(bytes("ab"));
    await vi.advanceTimersByTimeAsync(10);
    source.push(bytes("cd"));
    source.end();
    await vi.advanceTimersByTimeAsync(10);
    expect([sent.status, calls, await sent.response?.text()]).toEqual([200, 2, "abcd"]);
    await expectIdle(setup, sent);
  },
);

describe("a connection that broke", () => {
  const breakOff = failWith("connection_terminated");

  test("a request with a method in `retry` is sent once more, after a pause in which other requests are sent", async () => {
    const setup = setUp(breakOff);
    const sent = await setup.send();
    setup.transport.answer = answer;
    expect((await setup.send({ method: "POST" })).status).toBe(200);
    expect(sent.status).toBeUndefined();
    await vi.advanceTimersByTimeAsync(50);
    expect(sent.status).toBe(200);
    await expectIdle(setup, sent);
  });

  test("a request whose second connection breaks as well is not sent a third time", async () => {
    const setup = setUp(breakOff);
    const sent = await setup.send();
    await vi.advanceTimersByTimeAsync(WAIT);
    expect([sent.status, setup.transport.hops.length]).toEqual([502, 2]);
    await expectIdle(setup, sent);
  });

  test("a request waits if the connection after a broken one is refused", async () => {
    const outcomes = [
      () => {
        throw stale;
      },
      breakOff,
      refuse,
      refuse,
      refuse,
      answer,
    ];
    const setup = setUp(() => (outcomes.shift() as typeof answer)());
    const sent = await setup.send();
    await vi.advanceTimersByTimeAsync(1_000);
    expect(sent.status).toBe(200);
    await expectIdle(setup, sent);
  });

  test.each([
    ["POST", {}],
    ["GET", { retry: false }],
  ] as const)("a %s with %j fails immediately", async (method, options) => {
    const setup = setUp(breakOff, options);
    const sent = await setup.send({ method });
    expect([sent.status, setup.transport.hops.length]).toEqual([502, 1]);
  });
});

describe("several upstreams", () => {
  test("a request waits when all upstreams refuse, and goes to any that is back", async () => {
    const target = balance(["http://a.test", "http://b.test"], { policy: "first", slowStart: 0 });
    const setup = setUp(refuse, { retry: false }, target);
    const sent = await setup.send({ method: "POST" });
    const waiting = await setup.send({ method: "POST" });
    expect([setup.plan.held?.size, target.active, target.waiting]).toEqual([2, 0, 0]);
    setup.transport.hops.length = 0;
    setup.transport.answer = ({ upstream }) =>
      upstream.hostname === "b.test" ? answer() : refuse();
    await vi.advanceTimersByTimeAsync(2_000);
    expect([sent.status, waiting.status]).toEqual([200, 200]);
    expect(target.active).toBe(0);
    await expectIdle(setup, sent, waiting);
  });

  test("refused looks do not count as failures, so no upstream is ejected", async () => {
    const target = balance(["http://a.test", "http://b.test"]);
    const setup = setUp(refuse, {}, target);
    const sent = await setup.send({ method: "POST" });
    await vi.advanceTimersByTimeAsync(3_000);
    expect(setup.transport.hops.length).toBeGreaterThan(20);
    expect(target.states().map(({ state, failures }) => `${state} ${failures}`)).toEqual([
      "up 1",
      "up 1",
    ]);
    setup.transport.answer = answer;
    await vi.advanceTimersByTimeAsync(300);
    expect([sent.status, target.active]).toEqual([200, 0]);
  });

  test("each look asks all upstreams, and takes nothing from the retry budget", async () => {
    let first = 0;
    const target = balance(["http://a.test", "http://b.test"], {
      policy: { pick: (able) => able[able.length > 1 ? first++ % 2 : 0] as Member },
      outliers: false,
      retryBudget: { ratio: 0, perSecond: 1 },
    });
    const setup = setUp(refuse, {}, target);
    const sent = await setup.send({ method: "POST" });
    setup.transport.hops.length = 0;
    await vi.advanceTimersByTimeAsync(2_000);
    const hosts = setup.transport.hops.map(({ upstream }) => upstream.hostname);
    expect(hosts).toHaveLength(18);
    for (let look = 0; look < 18; look += 2) expect(hosts[look]).not.toBe(hosts[look + 1]);
    setup.transport.answer = answer;
    await vi.advanceTimersByTimeAsync(1_000);
    expect([sent.status, target.active]).toEqual([200, 0]);
  });

  test("a request does not wait while one upstream can take it, even if the retry budget is used up", async () => {
    const target = balance(["http://a.test", "http://b.test"], {
      policy: "first",
      outliers: false,
      retryBudget: { ratio: 0, perSecond: 1 },
    });
    const setup = setUp(
      ({ upstream }) => (upstream.hostname === "a.test" ? refuse() : answer()),
      {},
      target,
    );
    for (let i = 0; i < 5; i++) expect((await setup.send({ method: "POST" })).status).toBe(200);
    await expectIdle(setup);
  });

  test("an attempt over `attemptTimeout` continues if more than 128 KiB of its body were sent while it waited for another upstream", async () => {
    const target = balance(["http://a.test", "http://b.test"], { maxRequests: 1 });
    const answers = new Map<string, () => void>();
    const uploaded = new FakeSink();
    const setup = setUp(
      ({ method, body }, scope) =>
        new Promise((resolve, fail) => {
          answers.set(method, () => resolve(answer()));
          scope.onAbort({ fail });
          void body?.pipeTo(uploaded);
        }),
      { attemptTimeout: 500 },
      target,
    );
    // A POST is not sent again, so it keeps its upstream.
    const busy = await setup.send({ method: "POST" });
    const source = new ResponseBody(fakeScope(), { pause() {}, resume() {}, cancel() {} });
    const slow = await setup.send({ method: "PUT", body: source });
    await vi.waitFor(() => expect(target.waiting).toBe(1));
    source.push(new Uint8Array(131_073));
    answers.get("POST")?.();
    await vi.advanceTimersByTimeAsync(0);
    expect([busy.status, slow.status, target.waiting, target.active]).toEqual([
      200,
      undefined,
      0,
      1,
    ]);
    source.end();
    answers.get("PUT")?.();
    await vi.advanceTimersByTimeAsync(0);
    expect([slow.status, setup.transport.hops.length, target.active]).toEqual([200, 2, 0]);
    await expectIdle(setup, busy, slow);
  });

  test("with `anyTarget`, a request waits while no upstream can be picked, and is reported to the target only when it is sent", async () => {
    let isUp = false;
    const { choose } = balance(["http://a.test"]);
    const reports: boolean[] = [];
    const own = {
      choose,
      anyTarget: "http://a.test/base",
      pick: () => (isUp ? "http://b.test/base" : undefined),
      report: ({ isOver }: { isOver: boolean }) => void reports.push(isOver),
    };
    const setup = setUp(answer, { pathRewrite: { "^/x": "/y" } }, own);
    const sent = await setup.send({ method: "POST", path: "/x" });
    expect([sent.status, setup.plan.held?.size, reports.length]).toEqual([undefined, 1, 0]);
    await vi.advanceTimersByTimeAsync(1_000);
    isUp = true;
    await vi.advanceTimersByTimeAsync(1_000);
    expect(sent.status).toBe(200);
    expect(setup.transport.hops.map(({ upstream, path }) => upstream.origin + path)).toEqual([
      "http://b.test/base/y",
    ]);
    expect(reports).toEqual([false, true]);
    await expectIdle(setup, sent);
  });

  test("without `anyTarget`, a request gets 503 if no upstream can be picked", async () => {
    const { choose } = balance(["http://a.test"]);
    const setup = setUp(answer, {}, { choose, pick: () => undefined });
    expect((await setup.send()).status).toBe(503);
  });
});

/** Passes bodies on as web streams, whose readers cancel them late. */
const asStream: Interceptor = (next) => (request, scope) => {
  const stream = request.body?.stream().pipeThrough(new TransformStream<Uint8Array, Uint8Array>());
  return next({ ...request, body: stream ? new StreamBody(stream) : null }, scope);
};

describe("a request that an HTTP/2 upstream has not processed", () => {
  const unprocessed = (): never => {
    throw new ProxyError("connection_terminated", { unprocessed: true });
  };

  /** Returns an upstream that reads each request's body and then gives the next outcome, and the bodies that it has read. */
  function readThen(
    ...outcomes: (() => ReturnType<typeof fakeResponse>)[]
  ): [FakeTransport["answer"], string[]] {
    const bodies: string[] = [];
    return [
      async ({ body }) => {
        bodies.push(await new Response(body?.stream()).text());
        return (outcomes.shift() as typeof answer)();
      },
      bodies,
    ];
  }
  const upload = (length: number): Given<Incoming> => ({
    method: "POST",
    body: new StreamBody(streamOf(["x".repeat(length - 1), "y"])),
  });

  test("a request with a body of up to 128 KiB is sent again", async () => {
    const [read, bodies] = readThen(unprocessed, unprocessed, answer);
    const setup = setUp(read);
    const sent = await setup.send(upload(131_072));
    await vi.advanceTimersByTimeAsync(500);
    expect([sent.status, ...bodies.map(({ length }) => length)]).toEqual([
      200, 131_072, 131_072, 131_072,
    ]);
    await expectIdle(setup, sent);
    const [readLong, long] = readThen(unprocessed, answer);
    const tooLong = await setUp(readLong).send(upload(131_073));
    await vi.advanceTimersByTimeAsync(500);
    expect([tooLong.status, long.length]).toEqual([502, 1]);
  });

  /** Reads one chunk of the body, cancels the body, and reports that the request was not processed. */
  const readPart: FakeTransport["answer"] = async ({ body }) => {
    const sink = new FakeSink();
    sink.hasRoom = false;
    void body?.pipeTo(sink);
    await vi.advanceTimersByTimeAsync(0);
    expect(sink.log).toEqual(["ab"]);
    body?.cancel();
    return unprocessed();
  };
  const echo: FakeTransport["answer"] = async ({ body }) =>
    fakeResponse({ body: new BytesBody(bytes(await new Response(body?.stream()).text())) });

  test.each([
    ["after a wait", { retry: false }, 2, 400_000],
    ["immediately, and then after a wait", {}, 3, 400_000],
    // `asStream` reads ahead, so more of the body must be kept, and the limit is 128 KiB.
    ["through an interceptor", { interceptors: { attempt: [asStream] } }, 3, 60_000],
  ] as const)(
    "is sent again with what was read of its body, and the rest: %s",
    async (_, options: ProxyOptions, parts, length) => {
      const cancelled = vi.fn();
      let count = 0;
      const setup = setUp((...given) => (++count < parts ? readPart : echo)(...given), options);
      const body = new StreamBody(streamOf(["ab", "cd", "x".repeat(length), "y"], cancelled));
      const sent = await setup.send({ method: "POST", body });
      await vi.advanceTimersByTimeAsync(500);
      expect([sent.status, count]).toEqual([200, parts]);
      expect(await sent.response?.text()).toBe(`abcd${"x".repeat(length)}y`);
      expect(cancelled).not.toHaveBeenCalled();
      await expectIdle(setup, sent);
    },
  );

  test.each([
    ["the client disconnects", ({ incoming }: Sent) => incoming.leave(), undefined],
    ["the proxy is closed", (_: Sent, { plan }: Setup) => plan.held?.close(), 503],
    [
      "the request fails for another reason",
      (_: Sent, { transport }: Setup) => {
        transport.answer = failWith("http_protocol_error");
      },
      502,
    ],
    [
      "the request gets a response that does not need the rest",
      (_: Sent, { transport }: Setup) => {
        transport.answer = async ({ body }) => {
          await body?.pipeTo(new FakeSink());
          body?.cancel();
          return answer();
        };
      },
      200,
    ],
  ] as const)("its body, which waits, is cancelled when %s", async (_, end, status) => {
    const cancelled = vi.fn();
    const setup = setUp(readPart, { retry: false });
    const pieces = streamOf(["ab", "cd", "ef", "gh", "ij"], cancelled);
    const sent = await setup.send({ method: "POST", body: new StreamBody(pieces) });
    expect([sent.status, cancelled.mock.calls.length]).toEqual([undefined, 0]);
    end(sent, setup);
    await vi.advanceTimersByTimeAsync(500);
    if (status !== undefined) expect(sent.status).toBe(status);
    expect(cancelled).toHaveBeenCalledOnce();
    await expectIdle(setup, sent);
  });

  test("its body may be longer than 128 KiB if `retry` names its method", async () => {
    for (const [methods, length, status] of [
      [["POST"], 200_000, 200],
      [["GET"], 200_000, 502],
      [["GET"], 60_000, 200],
    ] as const) {
      const [read] = readThen(unprocessed, answer);
      const setup = setUp(read, { retry: { methods } });
      const sent = await setup.send(upload(length));
      await vi.advanceTimersByTimeAsync(500);
      expect(sent.status).toBe(status);
    }
  });
});

test("onRequestEnd reports how long a request has waited, and does not count refused looks as attempts", async () => {
  const ends: RequestEnd[] = [];
  const setup = setUp(refuse, { onRequestEnd: (end) => void ends.push(end) });
  await setup.send();
  await vi.advanceTimersByTimeAsync(100);
  setup.transport.answer = answer;
  await vi.advanceTimersByTimeAsync(100);
  await setup.send();
  expect(ends.map(({ attempts, timings }) => [attempts, timings.held])).toEqual([
    [1, 150],
    [1, undefined],
  ]);
});

test("the option `wait` is refused if the HTTP client does not report refused connections", () => {
  expect(() => createFetchProxy({ target: TARGET, wait: 1_000 })).toThrow(
    "fetchway: bad option `wait`: leave it out: the client here does not report refused connections",
  );
  expect(() => createFetchProxy({ target: TARGET, wait: 0 })).not.toThrow();
});

describe("a proxy to which the waiting requests of another one are moved", () => {
  /** Moves the requests that wait in one proxy to another one. */
  function move({ plan }: Setup, { plan: next }: Setup): void {
    plan.held?.move((exchange) => forwardAgain(exchange as Exchange, TARGET, next));
  }

  test("the new proxy sends the waiting requests with their bodies, and the old proxy reports them", async () => {
    const ends: RequestEnd[] = [];
    const [before, after] = [
      setUp(refuse, { onRequestEnd: (end) => void ends.push(end) }),
      setUp(answer, { headers: { "x-proxy": "after" } }),
    ];
    const bodies: string[] = [];
    after.transport.answer = async ({ body }) => {
      bodies.push(body === null ? "none" : await new Response(body.stream()).text());
      return fakeResponse();
    };
    const all = [
      await before.send(),
      await before.send({ method: "POST", body: new StreamBody(streamOf(["a", "b"])) }),
      await before.send({ method: "POST", body: new UnframedBody(streamOf(["c"])) }),
    ];
    await vi.advanceTimersByTimeAsync(20);
    move(before, after);
    await vi.advanceTimersByTimeAsync(10);
    expect(all.map(({ status }) => status)).toEqual([200, 200, 200]);
    expect(bodies.toSorted()).toEqual(["ab", "c", "none"]);
    expect(after.transport.hops.every(({ headers }) => headers.includes("after"))).toBe(true);
    expect(ends.map(({ status }) => status)).toEqual([200, 200, 200]);
    expect(ends.every(({ error }) => error === undefined)).toBe(true);
    expect(Math.min(...ends.map(({ timings }) => timings.held ?? 0))).toBeGreaterThan(10);
    await expectIdle(before, ...all);
  });

  test.each([
    ["first attempt", 0],
    ["attempt after a wait", 1],
  ])("sends a request whose %s is refused after the move", async (_, waits) => {
    const states: string[] = [];
    const onWait = ({ state }: WaitChange): void => void states.push(state);
    let end: (() => void) | undefined;
    const refuseLater: FakeTransport["answer"] = () =>
      new Promise((__, reject) => {
        end = () => reject(new ProxyError("connection_refused"));
      });
    const [before, after] = [setUp(waits > 0 ? refuse : refuseLater, { onWait }), setUp(answer)];
    const sent = await before.send({ method: "POST" });
    before.transport.answer = refuseLater;
    await vi.advanceTimersByTimeAsync(50);
    move(before, after);
    await vi.advanceTimersByTimeAsync(0);
    expect(sent.status).toBeUndefined();
    end?.();
    await vi.advanceTimersByTimeAsync(0);
    expect([sent.status, before.transport.hops.length]).toEqual([200, 1 + waits]);
    await expectIdle(before, sent);
    expect(states).toEqual(waits > 0 ? ["waiting", "over"] : []);
  });

  test("gets requests that wait for several upstreams, which then count none of these requests", async () => {
    const target = balance(["http://a.test", "http://b.test"]);
    const [before, after] = [setUp(refuse, {}, target), setUp(answer)];
    const all = [await before.send(), await before.send({ method: "POST" })];
    move(before, after);
    await vi.advanceTimersByTimeAsync(0);
    expect(all.map(({ status }) => status)).toEqual([200, 200]);
    expect([target.active, target.waiting]).toEqual([0, 0]);
    await expectIdle(before, ...all);
  });

  test("does not get a request whose body a hook has replaced, because the hook may have read it", async () => {
    const onRequest: ProxyOptions["onRequest"] = (draft) => void (draft.body = "changed");
    const [before, after] = [setUp(refuse, { onRequest }), setUp(answer)];
    const body = new StreamBody(streamOf(["a"]));
    const sent = await before.send({ method: "POST", body });
    move(before, after);
    await vi.advanceTimersByTimeAsync(0);
    expect([sent.status, after.transport.hops.length]).toEqual([undefined, 0]);
  });

  test("does not get a request that may have been processed, was redirected, or whose body the upstream has read", async () => {
    const broken = failWith("connection_terminated");
    const unprocessed = (): never => {
      throw new ProxyError("connection_terminated", { unprocessed: true });
    };
    const redirected: FakeTransport["answer"] = ({ path }) =>
      path === "/" ? fakeResponse(to("/next")) : refuse();
    for (const [first, method, options] of [
      [broken, "GET", {}],
      [redirected, "POST", { followRedirects: true, retry: false }],
      [
        async ({ body }) => (await new Response(body?.stream()).text(), unprocessed()),
        "POST",
        { retry: false },
      ],
    ] as [FakeTransport["answer"], string, ProxyOptions][]) {
      const [before, after] = [setUp(first, options), setUp(answer)];
      const body = method === "POST" ? new StreamBody(streamOf(["a"])) : null;
      const sent = await before.send({ method, body });
      if (first === broken) {
        before.transport.answer = refuse;
        await vi.advanceTimersByTimeAsync(50);
      }
      expect(before.plan.held?.size).toBe(1);
      move(before, after);
      await vi.advanceTimersByTimeAsync(0);
      expect([sent.status, after.transport.hops.length]).toEqual([undefined, 0]);
      before.transport.answer = answer;
      await vi.advanceTimersByTimeAsync(1_000);
      expect(sent.status).toBe(200);
    }
  });

  test("aborts a request whose client disconnects after the move", async () => {
    const [before, after] = [setUp(refuse), setUp(hang)];
    const sent = await before.send();
    move(before, after);
    await vi.advanceTimersByTimeAsync(0);
    sent.incoming.leave();
    await vi.advanceTimersByTimeAsync(0);
    expect([sent.status, after.transport.hops.length]).toEqual([499, 1]);
    await expectIdle(before, sent);
  });
});

describe("`onWait`", () => {
  function watch(answers: FakeTransport["answer"], target?: Target): [Setup, WaitChange[]] {
    const changes: WaitChange[] = [];
    return [setUp(answers, { onWait: (change) => void changes.push(change) }, target), changes];
  }

  test("reports the upstream for which requests wait, and that it is back", async () => {
    const [setup, changes] = watch(refuse);
    await setup.send();
    const begin = { upstream: TARGET, reason: "connection refused" };
    expect(changes).toEqual([{ ...begin, state: "waiting", requests: 0, duration: 0 }]);
    await setup.send();
    await vi.advanceTimersByTimeAsync(100);
    setup.transport.answer = answer;
    await vi.advanceTimersByTimeAsync(500);
    expect(changes.slice(1)).toEqual([{ ...begin, state: "back", requests: 2, duration: 150 }]);
    expect(changes.map(describeWait)).toEqual([
      `requests wait for ${TARGET} (connection refused)`,
      `${TARGET} is back after 0.1 s; 2 requests have waited`,
    ]);
  });

  test("reports the end of a wait without success", async () => {
    const [setup, changes] = watch(refuse);
    await setup.send();
    await vi.advanceTimersByTimeAsync(WAIT);
    expect(changes.map(describeWait).at(-1)).toBe(
      `no request waits for ${TARGET} any longer (connection refused); 1 request has waited in 5.0 s`,
    );
    expect(changes).toHaveLength(2);
  });

  test("names three of five upstreams, and says how many more there are", async () => {
    const targets = ["a", "b", "c", "d", "e"].map((name) => `http://${name}.test`);
    const [setup, changes] = watch(refuse, balance(targets));
    await setup.send();
    expect(changes[0]?.upstream).toBe("http://a.test, http://b.test, http://c.test and 2 more");
  });

  test("may throw: its exception is printed, and the requests are forwarded", async () => {
    const printed = vi.spyOn(console, "error").mockReturnValue();
    const setup = setUp(refuse, {
      onWait: () => {
        throw new Error("of the app");
      },
    });
    const sent = await setup.send();
    setup.transport.answer = answer;
    await vi.advanceTimersByTimeAsync(50);
    expect([sent.status, printed.mock.calls.length]).toEqual([200, 2]);
    printed.mockRestore();
  });
});
