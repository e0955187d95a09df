/** When a request is sent again, and how often: the decision for every outcome at every `RetryPlace`. */
import { describe, expect, test } from "vitest";
import { rfc } from "../../conformance/rfc.ts";
import { ProxyError, type ProxyErrorCode } from "../../../src/error.ts";
import {
  attemptTooLong,
  nextAttempt,
  type Outcome,
  outcomeOf,
  type RetryPlace,
} from "../../../src/exchange/repeat.ts";
import { retryDefaults } from "../../../src/options/repeatoptions.ts";
import type { UpstreamResponse } from "../../../src/transport/message.ts";
import { balance } from "../../../src/upstreams/balance.ts";
import {
  bytes,
  fakeRequest,
  fakeResponse,
  FakeTransport,
  run,
  stale,
} from "../../helpers/fakes.ts";

const PLACES: readonly RetryPlace[] = ["alone", "same", "another", "later"];

/** For each outcome, the decision at each place, as `describeRule` writes it; "-" if the request is not sent again. */
const TABLE: Record<Outcome, [alone: string, same: string, another: string, later: string]> = {
  refused: ["listed new counts", "-", "any", "any new"],
  unresolved: ["-", "-", "any", "any new"],
  unsent: ["-", "-", "any", "-"],
  unprocessed: ["any new counts", "any new counts", "any", "any new"],
  stale: ["listed new counts", "listed new counts", "listed counts", "listed new counts"],
  abandoned: ["listed new counts", "-", "listed counts", "-"],
  broken: ["-", "-", "listed counts", "listed new counts"],
  status: ["listed counts", "-", "listed counts", "-"],
  final: ["-", "-", "-", "-"],
};

/**
 * Describes what the rule decides. `any` or `listed`: whether a request with any method is sent again, or only one
 * with a method that `retry` names; `new`: on a new connection; `counts`: this uses up an attempt.
 */
function describeRule(outcome: Outcome, place: RetryPlace): string {
  const repeat = (method: string, left: number): ReturnType<typeof nextAttempt> =>
    nextAttempt(fakeRequest({ method }), outcome, place, retryDefaults, left);
  const get = repeat("GET", 1);
  if (get === undefined) return "-";
  const words = [repeat("POST", 1) === undefined ? "listed" : "any"];
  if (get.request.newConnection) words.push("new");
  if (get.left === 0) words.push("counts");
  expect(repeat("GET", 0) === undefined).toBe(get.left === 0);
  return words.join(" ");
}

test.each(Object.entries(TABLE))(
  "after the outcome %s, a request is sent again as `TABLE` says for each `RetryPlace`",
  (outcome, row) => {
    expect(PLACES.map((place) => describeRule(outcome as Outcome, place))).toEqual(row);
  },
);

test("a request is not sent again with `attempts: 0`, or if its body was read and not kept", () => {
  const none = { ...retryDefaults, attempts: 0 };
  expect(nextAttempt(fakeRequest(), "refused", "another", none, 0)).toBeUndefined();
  const read = { replay: undefined } as never;
  const request = { ...fakeRequest({ method: "PUT" }), body: read };
  expect(nextAttempt(request, "refused", "another", retryDefaults, 1)).toBeUndefined();
  const kept = fakeRequest({ method: "PUT", body: bytes("x") });
  expect(nextAttempt(kept, "refused", "another", retryDefaults, 1)?.request.body?.replay).toEqual(
    bytes("x"),
  );
});

test("a request whose new connection closes without a response is sent again only to another upstream", () => {
  const request = { ...fakeRequest(), newConnection: true };
  expect(nextAttempt(request, "stale", "same", retryDefaults, 1)).toBeUndefined();
  expect(nextAttempt(request, "stale", "another", retryDefaults, 1)?.request.newConnection).toBe(
    true,
  );
});

const CODES: [ProxyErrorCode, Outcome][] = [
  ["connection_refused", "refused"],
  ["connection_timeout", "unsent"],
  ["dns_error", "unresolved"],
  ["dns_timeout", "unresolved"],
  ["destination_ip_prohibited", "unsent"],
  ["destination_ip_unroutable", "unsent"],
  ["connection_limit_reached", "unsent"],
  ["tls_certificate_error", "unsent"],
  ["connection_terminated", "broken"],
  ["tls_protocol_error", "broken"],
  ["tls_alert_received", "broken"],
  ["connection_read_timeout", "final"],
  ["http_response_timeout", "final"],
  ["http_response_incomplete", "final"],
  ["http_request_error", "final"],
  ["proxy_internal_error", "final"],
];

test.each(CODES)("an error with the code %s has the outcome %s", (code, outcome) => {
  expect(outcomeOf(new ProxyError(code))).toBe(outcome);
});

test("the outcome of an error depends on its flags and its class, not only on its code", () => {
  expect(outcomeOf(attemptTooLong(5))).toBe("abandoned");
  expect(outcomeOf(stale)).toBe("stale");
  expect(outcomeOf(new ProxyError("connection_terminated", { unprocessed: true }))).toBe(
    "unprocessed",
  );
  expect(outcomeOf(new TypeError("oops"))).toBe("final");
});

describe("how often a request to several upstreams is sent", () => {
  const ANSWERS: Record<string, () => UpstreamResponse> = {
    stale: () => fail(stale),
    refused: () => fail(new ProxyError("connection_refused")),
    unprocessed: () => fail(new ProxyError("connection_terminated", { unprocessed: true })),
    broken: () => fail(new ProxyError("connection_terminated")),
    full: () => fail(new ProxyError("connection_limit_reached")),
    busy: () => fakeResponse({ status: 503 }),
    ok: () => fakeResponse(),
  };

  function fail(error: Error): never {
    throw error;
  }

  /**
   * Sends a request. Each upstream gives its answers in turn, and repeats the last one.
   * @returns the upstreams in the order in which they got the request, with `+` if on a new connection, and the status
   */
  async function send(
    answers: Record<string, string>,
    attempts: number,
    method = "GET",
  ): Promise<string> {
    const went: string[] = [];
    const transport = new FakeTransport(({ upstream, newConnection }) => {
      const name = upstream.hostname.slice(0, 1);
      went.push(newConnection ? `${name}+` : name);
      const [first, second = first] = (answers[name] as string).split(" ");
      const nth = went.filter((each) => each.startsWith(name)).length;
      return (ANSWERS[(nth === 1 ? first : second) as string] as () => UpstreamResponse)();
    });
    const names = Object.keys(answers);
    const target = balance(
      names.map((name) => `http://${name}.test`),
      { policy: "first", retryBudget: { perSecond: 100 }, outliers: false },
    );
    const options = { retry: { attempts, statusCodes: [503] } };
    const { status } = await run(
      { method, request: () => new Request("http://proxy.test/") },
      { transport, target, options },
    );
    expect(target.active).toBe(0);
    return [...went, status].join(" ");
  }

  test.each([
    ["a stale connection is replaced by a new one", { a: "stale ok", b: "ok" }, 1, "a a+ 200"],
    ["a stale connection is replaced only once", { a: "stale", b: "ok" }, 1, "a a+ 502"],
    [
      "of two further attempts, the second goes to another upstream",
      { a: "stale", b: "ok" },
      2,
      "a a+ b+ 200",
    ],
    [
      "three upstreams do not multiply the attempts",
      { a: "stale", b: "stale", c: "stale" },
      2,
      "a a+ b+ 502",
    ],
    [
      "a request refused on the new connection goes to another upstream",
      { a: "stale refused", b: "ok" },
      1,
      "a a+ b+ 200",
    ],
    ["a broken connection uses up an attempt", { a: "broken", b: "broken", c: "ok" }, 1, "a b 502"],
    ["a status in `retry` uses up an attempt", { a: "busy", b: "busy", c: "ok" }, 1, "a b 503"],
    [
      "a refused request uses up no attempt",
      { a: "refused", b: "refused", c: "ok" },
      1,
      "a b c 200",
    ],
    [
      "a refused request uses up no attempt, also after a broken connection",
      { a: "broken", b: "refused", c: "ok" },
      1,
      "a b c 200",
    ],
    ["each upstream gets a refused request once", { a: "refused", b: "refused" }, 5, "a b 502"],
    [
      "an unprocessed request goes to the same upstream again, and then to the others",
      { a: "unprocessed", b: "unprocessed", c: "ok" },
      1,
      "a a+ b+ c+ 200",
    ],
  ] as const)("%s: %j with attempts: %i", async (_, answers, attempts, expected) => {
    rfc("9110-9.2.2-twice");
    expect(await send(answers, attempts)).toBe(expected);
  });

  test("a POST goes to another upstream only if nothing was sent or processed", async () => {
    expect(await send({ a: "refused", b: "ok" }, 1, "POST")).toBe("a b 200");
    expect(await send({ a: "full", b: "ok" }, 1, "POST")).toBe("a b 200");
    expect(await send({ a: "unprocessed", b: "ok" }, 1, "POST")).toBe("a a+ b+ 200");
    expect(await send({ a: "stale", b: "ok" }, 1, "POST")).toBe("a 502");
    expect(await send({ a: "busy", b: "ok" }, 1, "POST")).toBe("a 503");
  });
});

test("a request that is sent again after a stale connection counts as one request at the upstream", async () => {
  const transport = new FakeTransport(({ newConnection }) => {
    if (!newConnection) throw stale;
    return fakeResponse();
  });
  const target = balance(["http://a.test", "http://b.test"], { policy: "first" });
  await run({}, { transport, target });
  expect(target.states()[0]).toMatchObject({ requests: 1, failures: 0, active: 0 });
});
