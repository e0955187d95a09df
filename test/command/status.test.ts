import { Script } from "node:vm";
import { describe, expect, test, vi } from "vitest";
import { advisory } from "../conformance/advisory.ts";
import { parseAdminAddress } from "../../command/status/adminaddress.ts";
import type { Readiness } from "../../command/status/condition.ts";
import { BOUNDS, Metrics, type MetricsReport, OTHER } from "../../command/status/metrics.ts";
import { renderMetrics } from "../../command/status/prometheus.ts";
import { statusPage } from "../../command/status/statuspage.ts";
import { isOwnAuthority, StatusPages } from "../../command/status/statusserver.ts";
import { clientGone, ProxyError } from "../../src/error.ts";
import type { PoolStats } from "../../src/transport/stats.ts";
import { endOf } from "./_requestend.ts";
import { until } from "../helpers/wait.ts";

const about = { version: "1.2.3", runtime: "Test 1" };
const pool: PoolStats = {
  created: 7,
  closed: 2,
  failed: 1,
  timedOut: 0,
  requests: 9,
  requestsPerSocket: 9 / 7,
  tunnels: 1,
  version: 1,
  origins: { "http://127.0.0.1:4000": { inUse: 2, free: 3, waiting: 4, tunnels: 1 } },
};

function createMetrics(): Metrics {
  return new Metrics(about, () => pool, 100);
}
const took = (ms: number): object => ({ timings: { firstByte: ms, total: ms } });

describe("the counters of the status page", () => {
  test("have the requests and failures of each second of the last minute", () => {
    const metrics = createMetrics();
    metrics.record(endOf(), 100);
    metrics.record(endOf({ status: 502, error: new ProxyError("connection_refused") }), 101);
    metrics.record(endOf({ status: 500 }), 101);
    metrics.record(endOf({ status: 499, error: clientGone() }), 101);
    const message = "the client moved fewer than 240 bytes a second (minRate) while others waited";
    const slow = new ProxyError("http_request_error", { status: 408, message });
    metrics.record(endOf({ status: 200, error: slow }), 101);
    const { total, recent, errors } = metrics.snapshot(102);
    expect(recent.requests.slice(-4)).toEqual([0, 1, 4, 0]);
    expect(recent.failed.slice(-4)).toEqual([0, 0, 2, 0]);
    expect(recent.statuses).toEqual({ "1xx": 0, "2xx": 2, "3xx": 0, "4xx": 1, "5xx": 2 });
    expect(total).toMatchObject({ requests: 5, failed: 2 });
    expect(errors).toEqual({ connection_refused: 1, client_left: 1, client_too_slow: 1 });
    // After a minute, only the totals are left.
    const later = metrics.snapshot(161);
    expect(later.recent.requests.reduce((sum, each) => sum + each)).toBe(0);
    expect(later.recent.statuses).toEqual({ "1xx": 0, "2xx": 0, "3xx": 0, "4xx": 0, "5xx": 0 });
    expect(later.recent.percentiles).toBeUndefined();
    expect(later.total.requests).toBe(5);
    // At 159, the window of 60 seconds still contains a request from 100.
    const again = createMetrics();
    again.record(endOf(), 100);
    expect(again.snapshot(159).recent.requests[0]).toBe(1);
  });

  test("have percentiles with an error of at most 2 %, and the exact maximum", () => {
    const metrics = createMetrics();
    for (let ms = 1; ms <= 1000; ms++) metrics.record(endOf(took(ms)), 100);
    const { p50 = 0, p90 = 0, p99 = 0, max = 0 } = metrics.snapshot(100).recent.percentiles ?? {};
    for (const [found, exact] of [
      [p50, 500],
      [p90, 900],
      [p99, 990],
    ] as const) {
      expect(Math.abs(found / exact - 1)).toBeLessThan(0.02);
    }
    expect(max).toBe(1000);
    metrics.record(endOf(took(12_345.6789)), 100);
    expect(metrics.snapshot(100).recent.percentiles?.max).toBe(12_345.679);
    const { latencies } = metrics.snapshot(100).recent;
    expect(latencies.reduce((sum, [, count]) => sum + count, 0)).toBe(1001);
  });

  test("distinguish p50, p90 and p99 even where they are close, and show none above the maximum", () => {
    const metrics = createMetrics();
    for (let n = 900; n <= 940; n++) metrics.record(endOf(took(n / 100)), 100);
    const { p50 = 0, p90 = 0, p99 = 0, max = 0 } = metrics.snapshot(100).recent.percentiles ?? {};
    expect([p50 < p90, p90 < p99, p99 <= max, max]).toEqual([true, true, true, 9.4]);
    // The maximum of an earlier minute is forgotten.
    metrics.record(endOf(took(1)), 160);
    expect(metrics.snapshot(160).recent.percentiles).toEqual({ p50: 1, p90: 1, p99: 1, max: 1 });
  });

  test("count a tunnel separately, because its client decides how long it lasts", () => {
    const metrics = createMetrics();
    metrics.record(
      endOf({ status: 101, protocol: "websocket", timings: { total: 1e6 } as never }),
      100,
    );
    const { total, recent, upstreams } = metrics.snapshot(100);
    expect(total.tunnels).toBe(1);
    expect(recent.percentiles).toBeUndefined();
    expect(upstreams[0]?.average).toBeUndefined();
    expect(metrics.series.size).toBe(0);
  });

  test("list each upstream with its connections", () => {
    const metrics = createMetrics();
    metrics.record(endOf(took(10)), 100);
    metrics.record(endOf({ ...took(30), status: 503 }), 100);
    expect(metrics.snapshot(101).upstreams).toMatchObject([
      {
        name: "http://127.0.0.1:4000",
        requests: 2,
        failed: 1,
        recentFailed: 1,
        average: 20,
        inUse: 2,
        free: 3,
        waiting: 4,
        tunnels: 1,
      },
    ]);
    expect(metrics.snapshot(101).connections).toMatchObject({ created: 7, inUse: 2, open: 1 });
  });

  test("list each route, with the reason if its requests fail", () => {
    const metrics = createMetrics();
    const refused = { status: 502, error: new ProxyError("connection_refused") };
    for (const end of [{}, refused, { status: 500 }]) {
      metrics.record(endOf({ route: "/api", ...took(10), ...end }), 100);
    }
    metrics.record(endOf({ route: "/", ...took(20) }), 101);
    metrics.record(endOf({ route: undefined, status: 404, upstream: undefined }), 101);
    const [api, all, none] = metrics.snapshot(102).routes;
    expect(api).toMatchObject({ name: "/api", requests: 3, failed: 2, recentFailed: 2 });
    expect(api?.average).toBe(10);
    expect(api?.condition).toEqual({
      state: "failing",
      reason: "66 % of the last minute failed, last: status 500",
      since: expect.any(Number) as number,
    });
    expect(all).toMatchObject({ name: "/", requests: 1, average: 20, condition: { state: "up" } });
    expect(none).toMatchObject({ name: "no route", requests: 1, condition: { state: "up" } });
    metrics.record(endOf({ route: "/api", ...refused }), 103);
    expect(metrics.snapshot(103).routes[0]?.condition.reason).toBe(
      "75 % of the last minute failed, last: connection_refused (is it running?)",
    );
    expect(metrics.snapshot(163).routes[0]).toMatchObject({
      requests: 4,
      recentFailed: 0,
      condition: { state: "idle" },
    });
  });

  test("count all attempts at one of several upstreams, not only the last one of each request", () => {
    const name = "http://127.0.0.1:4000";
    let counted = { requests: 0, failures: 0 };
    const state = { name, weight: 1, active: 0, waiting: 0, state: "up" } as const;
    const metrics = new Metrics(
      about,
      () => ({ ...pool, upstreams: [{ ...state, ...counted }] }),
      100,
    );
    const show = (second: number): object => {
      const { upstreams } = metrics.snapshot(second);
      const [{ requests, failed, recentFailed, recent, average } = { recent: [] as number[] }] =
        upstreams as Partial<(typeof upstreams)[number]>[];
      averages.push(average);
      return { requests, failed, recentFailed, recent: recent?.slice(-3) };
    };
    const averages: (number | undefined)[] = [];
    expect(show(100)).toEqual({ requests: 0, failed: 0, recentFailed: 0, recent: [0, 0, 0] });
    counted = { requests: 5, failures: 2 };
    metrics.record(endOf(took(10)), 101);
    counted = { requests: 6, failures: 3 };
    expect(show(102)).toEqual({ requests: 6, failed: 3, recentFailed: 3, recent: [5, 1, 0] });
    // After a minute, these counts are no longer part of the recent ones.
    expect(show(162)).toEqual({ requests: 6, failed: 3, recentFailed: 0, recent: [0, 0, 0] });
    expect(averages).toEqual([undefined, 10, undefined]);
    // The route was created anew, so its target counts from 0.
    counted = { requests: 2, failures: 1 };
    expect(show(162)).toMatchObject({ requests: 2, failed: 1, recentFailed: 1 });
  });

  test("list no upstream of removed routes, and do not count its earlier attempts as recent if it is added again", () => {
    const counted = { active: 0, waiting: 0, requests: 9, failures: 9, state: "up" } as const;
    let weight = 0;
    const poolStats = (): PoolStats => ({
      ...pool,
      origins: {},
      upstreams: [{ ...counted, name: "http://127.0.0.1:4000", weight }],
    });
    const metrics = new Metrics(about, poolStats, 0);
    expect(metrics.snapshot(100).upstreams).toEqual([]);
    weight = 1;
    expect(metrics.snapshot(130).upstreams).toMatchObject([
      { requests: 9, failed: 9, recentFailed: 0, condition: { state: "up" } },
    ]);
  });

  test("include how many requests wait for one of several upstreams, and for any of them", () => {
    const name = "http://127.0.0.1:4000";
    const counted = { weight: 1, active: 1, requests: 9, failures: 0, state: "up" } as const;
    const upstreams = [
      { ...counted, name, waiting: 2 },
      { ...counted, name: "http://b", waiting: 1 },
    ];
    const metrics = new Metrics(about, () => ({ ...pool, upstreams, waiting: 10 }), 100);
    const { connections, upstreams: shown } = metrics.snapshot(100);
    expect(connections).toMatchObject({ waiting: 14, waitingForAny: 7 });
    expect(shown.map((each) => each.waiting)).toEqual([6, 1]);
    const { samples } = parseMetrics(renderMetrics(metrics)).get("fetchway_waiting_requests") ?? {};
    expect(Object.fromEntries(samples ?? [])).toEqual({
      '{upstream="http://127.0.0.1:4000"}': 6,
      '{upstream="http://b"}': 1,
      '{upstream="any"}': 7,
    });
    const { connections: alone } = createMetrics().snapshot(100);
    expect(alone).toMatchObject({ waiting: 4, waitingForAny: undefined });
  });

  test("show the last requests, newest first, without queries", () => {
    const metrics = createMetrics();
    for (let i = 0; i < 100; i++) metrics.record(endOf({ path: `/${i}?token=secret` }), 100);
    const { requests } = metrics.snapshot(100);
    expect(requests).toHaveLength(30);
    expect(requests[0]).toMatchObject({ id: 100, path: "/99", client: "192.0.2.7", bytes: 2326 });
    expect(JSON.stringify(metrics.snapshot(100))).not.toContain("secret");
  });

  test("stay in bounded memory, whatever clients and upstreams send", () => {
    const metrics = createMetrics();
    const grow = (from: number): void => {
      for (let i = from; i < from + 2000; i++) {
        const error = new ProxyError("http_protocol_error", { message: `kind ${i}` });
        metrics.record(
          endOf({
            method: `M${i}`,
            path: `/${"x".repeat(9000)}`,
            route: `/r${i % 60}`,
            upstream: `http://u${i}`,
            status: 200 + (i % 800),
            error,
          }),
          100,
        );
        metrics.record(endOf({ status: 101, protocol: `p${i}` }), 100);
      }
    };
    grow(0);
    const sizes = (): number[] => [
      metrics.series.size,
      metrics.upstreams.size,
      metrics.routes.size,
      metrics.tunnels.size,
      metrics.errors.size,
      metrics.snapshot(100).failures.length,
    ];
    const before = sizes();
    expect(before).toEqual([1001, 51, 51, 11, expect.any(Number), 20]);
    const { length } = JSON.stringify(metrics.snapshot(100));
    expect(length).toBeLessThan(80_000);
    grow(2000);
    expect(sizes()).toEqual(before);
    expect(metrics.upstreams.get(OTHER)?.requests).toBeGreaterThan(3000);
    const labels = new Set(renderMetrics(metrics).match(/http_route="[^"]*"/g));
    expect(labels.size).toBeGreaterThan(40);
    expect(labels.size).toBeLessThanOrEqual(51);
    expect([...metrics.series.values()].filter((each) => each.isOverflow)).toHaveLength(1);
  });
});

describe("the counters of several processes", () => {
  const ends = Array.from({ length: 60 }, (_, i) =>
    endOf({
      path: `/${i}`,
      method: i % 3 === 0 ? "GET" : "POST",
      status: [200, 304, 502, 499, 101][i % 5] ?? 200,
      ...(i % 5 === 2 && { error: new ProxyError("connection_refused") }),
      ...(i % 5 === 3 && { error: clientGone() }),
      ...(i % 5 === 4 && { protocol: "websocket" }),
      upstream: `http://u${i % 4}`,
      route: [`/r${i % 3}`, undefined][i % 2],
      attempts: 1 + (i % 2),
      bytesIn: i,
      bytesOut: 2 * i,
      startedAt: 1000 + i,
      // The sums of these durations are exact in binary, in any order.
      timings: { firstByte: i, total: 125 * i } as never,
    }),
  );

  test("add up to those of one process", () => {
    vi.useFakeTimers({ toFake: ["Date"] });
    const one = createMetrics();
    const sum = createMetrics();
    const workers = [createMetrics(), createMetrics()];
    ends.forEach((end, i) => {
      one.record(end, 100);
      workers[i % 2]?.record(end, 100);
    });
    // Reports pass between processes as JSON.
    for (const worker of workers) {
      sum.add(JSON.parse(JSON.stringify(worker.report())) as MetricsReport, 100);
    }
    const simplify = (metrics: Metrics): object => {
      const { uptime: _, startedAt: __, memory: ___, ...rest } = metrics.snapshot(100);
      const byName = Object.fromEntries(rest.upstreams.map((each) => [each.name, each]));
      const byCause = Object.fromEntries(
        rest.failures.map(({ ago: ____, ...each }) => [each.cause, each]),
      );
      const routes = rest.routes.toSorted((a, b) => (a.name < b.name ? -1 : 1));
      const tunnels = [...metrics.tunnels];
      return { ...rest, upstreams: byName, routes, failures: byCause, tunnels };
    };
    expect(simplify(sum)).toEqual(simplify(one));
    vi.useRealTimers();
    const sortedSeries = (metrics: Metrics): object =>
      [...metrics.series.entries()].toSorted(([a], [b]) => (a < b ? -1 : 1));
    expect(sortedSeries(sum)).toEqual(sortedSeries(one));
    expect(sum.requests).toBe(60);
  });

  test("have failures with the right age, and requests in the right order, after the system clock has been set back", () => {
    const hour = 3_600_000;
    const start = Date.UTC(2026, 0, 1);
    vi.useFakeTimers({ toFake: ["Date", "hrtime"], now: start });
    const sum = createMetrics();
    const workers = [createMetrics(), createMetrics()];
    const record = (worker: number, path: string): void => {
      const error = new ProxyError("connection_refused");
      workers[worker]?.record(endOf({ path, startedAt: Date.now(), status: 502, error }), 100);
      vi.advanceTimersByTime(1000);
    };
    record(0, "/1");
    vi.setSystemTime(start - hour);
    record(1, "/2");
    record(0, "/3");
    for (const worker of workers) sum.add(worker.report(), 100);
    vi.advanceTimersByTime(500);
    const { uptime, failures, requests, startedAt } = sum.snapshot(100);
    vi.useRealTimers();
    expect({ uptime, startedAt }).toEqual({ uptime: 3500, startedAt: start });
    expect(failures.map(({ count, ago }) => [count, ago])).toEqual([[3, 1500]]);
    expect(requests.map(({ path }) => path)).toEqual(["/3", "/2", "/1"]);
  });

  test("stay in bounded memory, however many routes, upstreams and errors the workers report", () => {
    const sum = createMetrics();
    for (let i = 0; i < 20; i++) {
      const worker = createMetrics();
      for (let j = 0; j < 100; j++) {
        const error = new ProxyError("http_protocol_error", { message: `kind ${i} ${j}` });
        const upstream = `http://u${i}-${j}`;
        const route = `/r${i}-${j}`;
        worker.record(endOf({ status: 200 + i * 30 + (j % 30), upstream, route, error }), 100);
      }
      sum.add(worker.report(), 100);
    }
    expect(sum.requests).toBe(2000);
    expect(sum.series.size).toBeLessThanOrEqual(1001);
    expect(sum.routes.size).toBeLessThanOrEqual(51);
    expect(new Set(Array.from(sum.series.values(), ({ route }) => route)).size).toBeLessThan(53);
    expect(sum.upstreams.size).toBeLessThanOrEqual(51);
    expect(sum.snapshot(100).failures.length).toBeLessThanOrEqual(20);
    expect(sum.snapshot(100).requests).toHaveLength(30);
    const counted = Array.from(sum.series.values(), ({ count }) => count);
    expect(counted.reduce((all, each) => all + each)).toBe(2000);
  });
});

/** Parses the text for Prometheus, and refuses it where Prometheus would. */
function parseMetrics(text: string): Map<string, { type: string; samples: Map<string, number> }> {
  const families = new Map<string, { type: string; samples: Map<string, number> }>();
  let name = "";
  expect(text.endsWith("\n")).toBe(true);
  for (const line of text.slice(0, -1).split("\n")) {
    const help = /^# HELP ([a-z_]+) .+$/.exec(line);
    const type = /^# TYPE ([a-z_]+) (counter|gauge|histogram)$/.exec(line);
    if (help !== null) {
      expect(families.has(help[1] as string)).toBe(false);
      name = help[1] as string;
    } else if (type !== null) {
      expect(type[1]).toBe(name);
      families.set(name, { type: type[2] as string, samples: new Map() });
    } else {
      const sample =
        /^([a-z_]+)(\{(?:[a-z_]+="(?:[^"\\\n]|\\["\\n])*"(?:,(?!\})|(?=\})))+\})? (-?[\d.e+-]+)$/.exec(
          line,
        );
      if (sample === null) throw new Error(`no sample: ${line}`);
      const family = families.get(name);
      const [, of = "", labels = "", value] = sample;
      const suffixes = family?.type === "histogram" ? ["_bucket", "_sum", "_count"] : [""];
      expect(suffixes.map((suffix) => name + suffix)).toContain(of);
      const key = of.slice(name.length) + labels;
      expect(family?.samples.has(key)).toBe(false);
      family?.samples.set(key, Number(value));
    }
  }
  return families;
}

describe("the text for Prometheus", () => {
  test("has a histogram whose buckets are cumulative", () => {
    const metrics = createMetrics();
    for (const ms of [1, 5, 6, 60, 20_000])
      metrics.record(endOf({ timings: { total: ms } as never }), 100);
    const { samples = new Map<string, number>(), type } =
      parseMetrics(renderMetrics(metrics)).get("http_server_request_duration_seconds") ?? {};
    expect(type).toBe("histogram");
    const labels = 'http_request_method="GET",http_response_status_code="200"';
    const bucket = (le: string): number | undefined => samples.get(`_bucket{${labels},le="${le}"}`);
    expect([...BOUNDS, "+Inf"].map((bound) => bucket(String(bound)))).toEqual([
      2, 3, 3, 3, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 5,
    ]);
    expect(samples.get(`_count{${labels}}`)).toBe(5);
    expect(samples.get(`_sum{${labels}}`)).toBeCloseTo(20.072, 6);
  });

  test("has a label for the route, as OpenTelemetry names it", () => {
    const metrics = createMetrics();
    metrics.record(endOf({ route: 'shop.example/a "b"' }), 100);
    metrics.record(endOf({ status: 404, upstream: undefined }), 100);
    const { samples = new Map<string, number>() } =
      parseMetrics(renderMetrics(metrics)).get("http_server_request_duration_seconds") ?? {};
    const count = (status: number, labels: string): number | undefined =>
      samples.get(
        `_count{http_request_method="GET",${labels}http_response_status_code="${status}"}`,
      );
    expect(count(200, String.raw`http_route="shop.example/a \"b\"",`)).toBe(1);
    expect(count(404, "")).toBe(1);
  });

  test("has counters and gauges with their types, and bounded labels", () => {
    const metrics = createMetrics();
    metrics.record(
      endOf({ method: 'X"\\\n', status: 502, error: new ProxyError("dns_error"), attempts: 3 }),
      100,
    );
    metrics.record(endOf({ status: 101, protocol: 'a"b\\c\nd', bytesIn: 5 }), 100);
    const families = parseMetrics(renderMetrics(metrics));
    const value = (name: string, labels = ""): number | undefined =>
      families.get(name)?.samples.get(labels);
    for (const [name, { type }] of families) {
      if (type === "counter") expect(name).toMatch(/_total$/);
    }
    expect(value("fetchway_errors_total", '{error_type="dns_error"}')).toBe(1);
    expect(value("fetchway_tunnels_total", String.raw`{protocol="a\"b\\c\nd"}`)).toBe(1);
    expect(value("fetchway_retries_total")).toBe(2);
    expect(value("fetchway_request_body_bytes_total")).toBe(5);
    const upstream = 'upstream="http://127.0.0.1:4000"';
    expect(value("fetchway_upstream_failures_total", `{${upstream}}`)).toBe(1);
    expect(value("fetchway_waiting_requests", `{${upstream}}`)).toBe(4);
    expect(
      value("http_client_open_connections", `{${upstream},http_connection_state="idle"}`),
    ).toBe(3);
    expect(value("fetchway_connections_created_total")).toBe(7);
    expect(value("fetchway_build_info", '{version="1.2.3",runtime="Test 1"}')).toBe(1);
    const durations = families.get("http_server_request_duration_seconds")?.samples ?? new Map();
    expect([...durations.keys()].join()).toContain('http_request_method="_OTHER"');
  });
});

describe("the status server", () => {
  let readiness: Readiness = "ready";
  const pages = new StatusPages(
    { metrics: createMetrics(), readiness: () => readiness },
    "Status.Example",
  );
  const ask = (path: string, host = "127.0.0.1:9100", method = "GET"): Response =>
    pages.answer(new Request(`http://x${path}`, { method, headers: { host } }));

  test("reports that the command is alive while it runs, and ready while it neither starts nor stops", async () => {
    expect([ask("/healthz").status, await ask("/healthz").text()]).toEqual([200, "ok\n"]);
    expect([ask("/readyz").status, await ask("/readyz").text()]).toEqual([200, "ready\n"]);
    for (const other of ["starting", "stopping"] as const) {
      readiness = other;
      expect(ask("/healthz").status).toBe(200);
      expect([ask("/readyz").status, await ask("/readyz").text()]).toEqual([503, `${other}\n`]);
      expect(await ask("/stats").json()).toMatchObject({ ready: false, overall: { state: other } });
    }
    readiness = "ready";
  });

  test("reports the state of the command as a whole, with its reasons", async () => {
    const counts = { weight: 1, active: 0, waiting: 0, requests: 0, failures: 0 };
    const change = { reason: "5 failures in a row", since: 7 };
    const several = (["ejected", "up", "down", "draining"] as const).map((state) =>
      Object.assign({ name: `http://${state}`, state }, counts, change),
    );
    const metrics = new Metrics(about, () => ({ ...pool, origins: {}, upstreams: several }));
    const own = new StatusPages({ metrics, readiness: () => "ready" }, "");
    const describeAll = async (): Promise<object> => {
      const headers = { host: "localhost" };
      const answer = own.answer(new Request("http://x/stats", { headers }));
      return ((await answer.json()) as { overall: object }).overall;
    };
    expect(await describeAll()).toEqual({
      state: "degraded",
      reasons: ["2 of 3 upstreams down"],
    });
    expect(metrics.snapshot().upstreams[0]).toMatchObject({
      condition: { state: "ejected", reason: "5 failures in a row", since: 7 },
    });
    for (let i = 0; i < 3; i++) {
      const failed = i === 0 ? {} : { status: 502, error: new ProxyError("connection_refused") };
      metrics.record(
        endOf({ ...failed, route: i === 0 ? undefined : "/api", upstream: undefined }),
      );
    }
    expect(await describeAll()).toEqual({
      state: "failing",
      reasons: ["66 % of the last minute are 5xx", "2 of 3 upstreams down"],
    });
    for (let i = 0; i < 10; i++) metrics.record(endOf({ route: "/", upstream: undefined }));
    // The first of the 13 requests had no route, so there are only two routes.
    expect(await describeAll()).toEqual({
      state: "degraded",
      reasons: [
        "15 % of the last minute are 5xx",
        "2 of 3 upstreams down",
        "1 of 2 routes failing",
      ],
    });
  });

  test("serves JSON and the text for Prometheus, and refuses other paths and methods", async () => {
    expect(await ask("/stats").json()).toMatchObject({ version: "1.2.3", total: { requests: 0 } });
    expect(ask("/metrics").headers.get("content-type")).toBe(
      "text/plain; version=0.0.4; charset=utf-8",
    );
    expect(ask("/etc").status).toBe(404);
    expect(ask("/", undefined, "POST").status).toBe(405);
    expect(ask("/", undefined, "HEAD").status).toBe(200);
    expect(ask("/events", undefined, "HEAD").body).toBeNull();
  });

  test("refuses a page whose host name was made to resolve to the status server (DNS rebinding)", () => {
    advisory("CVE-2025-24010");
    for (const path of ["/", "/stats", "/metrics", "/events"]) {
      expect(ask(path, "evil.example").status).toBe(421);
      expect(ask(path, "evil.example").headers.get("content-security-policy")).toBeNull();
    }
    // A load balancer may send any host name. Its health check learns only the status.
    expect(ask("/healthz", "evil.example").status).toBe(200);
  });

  test("does not let a page of another site use up the connections for status pages", async () => {
    advisory("CVE-2025-24010");
    const from = (site: string, path: string): Response => {
      const headers = { host: "127.0.0.1:9100", "sec-fetch-site": site };
      return pages.answer(new Request(`http://x${path}`, { headers }));
    };
    for (const site of ["cross-site", "same-site"]) {
      expect(from(site, "/events").status).toBe(403);
      // A link to the page may be on any site.
      expect(from(site, "/").status).toBe(200);
    }
    expect(pages.openPages).toBe(0);
    for (const site of ["same-origin", "none"]) {
      const { status, body } = from(site, "/events");
      expect(status).toBe(200);
      await body?.cancel();
    }
  });

  test.each([
    ["localhost", true],
    ["LOCALHOST:9100", true],
    ["127.0.0.1", true],
    ["10.1.2.3:80", true],
    ["[::1]:9100", true],
    ["status.example:1", true],
    ["localhost.evil.example", false],
    ["127.0.0.1.evil.example:9100", false],
    ["evil.example#localhost", false],
    ["a:b@localhost", false],
    ["[::1", false],
    ["", false],
    [null, false],
  ])("the authority %j is the server's own: %s", (authority, expected) =>
    expect(isOwnAuthority(authority, "status.example")).toBe(expected),
  );

  test("sends one event a second to each open page, and stops when the last page is closed", async () => {
    const readers = [ask("/events"), ask("/events")].map(({ body }) => body?.getReader());
    for (const reader of readers) {
      for (let i = 0; i < 2; i++) {
        const { value } = (await reader?.read()) ?? {};
        const [, json = ""] = /^data: (.*)\n\n$/.exec(new TextDecoder().decode(value)) ?? [];
        expect(JSON.parse(json)).toMatchObject({ ready: true, version: "1.2.3" });
      }
    }
    expect(pages.openPages).toBe(2);
    for (const reader of readers) await reader?.cancel();
    expect(pages.openPages).toBe(0);
  });

  test("limits the number of pages that receive events", async () => {
    const open = Array.from({ length: 25 }, () => ask("/events"));
    expect(open.map(({ status }) => status)).toEqual([
      ...Array.from({ length: 20 }, () => 200),
      ...Array.from({ length: 5 }, () => 503),
    ]);
    for (const { body } of open) await body?.cancel();
    await until(() => pages.openPages === 0, "all pages closed");
  });

  test("serves a page that loads nothing from the network, and whose policy allows only its own script", async () => {
    const response = ask("/");
    const policy = response.headers.get("content-security-policy") ?? "";
    const page = await response.text();
    expect(page).toBe(statusPage);
    expect(policy).toMatch(
      /^default-src 'none'; style-src 'sha256-[\w+/]{43}='; script-src 'sha256-[\w+/]{43}='; connect-src 'self'; /,
    );
    expect(policy).not.toContain("unsafe");
    for (const [, content = ""] of page.matchAll(
      /<(?:style|script)>([^]*?)<\/(?:style|script)>/g,
    )) {
      const digest = await crypto.subtle.digest("SHA-256", new TextEncoder().encode(content));
      expect(policy).toContain(Buffer.from(digest).toString("base64"));
    }
    // The only URLs of other servers are two SVG namespaces, which are not fetched.
    expect(page.match(/https?:\/\/[\w.]+/g)?.filter((url) => url !== "http://www.w3.org")).toEqual(
      [],
    );
    expect(page).not.toMatch(
      /innerHTML|insertAdjacentHTML|document\.write|eval\(| style="| on\w+="/,
    );
    expect(page.length).toBeLessThan(25_000);
    expect(() => new Script(/<script>([^]*)<\/script>/.exec(page)?.[1] ?? "throw")).not.toThrow();
  });
});

test.each([
  [9100, { host: "127.0.0.1", port: 9100 }],
  ["0", { host: "127.0.0.1", port: 0 }],
  ["0.0.0.0:9100", { host: "0.0.0.0", port: 9100 }],
  ["[::1]:9100", { host: "::1", port: 9100 }],
  ["status.example:80", { host: "status.example", port: 80 }],
  ["65536", undefined],
  ["", undefined],
  [":9100", undefined],
  ["9100:", undefined],
  ["http://127.0.0.1:9100", undefined],
  [-1, undefined],
  [1.5, undefined],
])("the address %j of the status page is parsed as %j", (text, expected) =>
  expect(parseAdminAddress(text)).toEqual(expected),
);
