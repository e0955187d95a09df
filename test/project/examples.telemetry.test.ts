/** The example for OpenTelemetry, with an SDK that keeps spans and metrics in memory. */
import { rmSync, writeFileSync } from "node:fs";
import { createServer } from "node:http";
import { metrics, propagation, SpanKind, SpanStatusCode, trace } from "@opentelemetry/api";
import { W3CTraceContextPropagator } from "@opentelemetry/core";
import {
  AggregationTemporality,
  InMemoryMetricExporter,
  MeterProvider,
  PeriodicExportingMetricReader,
} from "@opentelemetry/sdk-metrics";
import {
  InMemorySpanExporter,
  SimpleSpanProcessor,
  TracerProvider,
} from "@opentelemetry/sdk-trace";
import { expect, test } from "vitest";
import type { NodeProxy } from "../../runtimes/node.ts";
import { copyPathOf, readLinkedExample } from "./_example.ts";
import { listen } from "../helpers/serve.ts";
import { Upstream } from "../helpers/upstream.ts";

const TRACE = "4bf92f3577b34da6a3ce929d0e0e4736";
const CLIENT = "00f067aa0ba902b7";

test("opentelemetry.ts makes a span for each attempt, and metrics with stable names", async () => {
  const spans = new InMemorySpanExporter();
  const provider = new TracerProvider({
    spanProcessors: [new SimpleSpanProcessor({ exporter: spans })],
  });
  const points = new InMemoryMetricExporter(AggregationTemporality.CUMULATIVE);
  const reader = new PeriodicExportingMetricReader({ exporter: points });
  trace.setGlobalTracerProvider(provider);
  metrics.setGlobalMeterProvider(new MeterProvider({ readers: [reader] }));
  propagation.setGlobalPropagator(new W3CTraceContextPropagator());

  const upstream = new Upstream();
  await upstream.listen();
  const { port } = new URL(upstream.url);
  const copy = copyPathOf("opentelemetry");
  const example = readLinkedExample("opentelemetry");
  writeFileSync(copy, example.replaceAll("http://127.0.0.1:4000", upstream.url));
  try {
    const { default: proxy } = (await import(copy)) as { default: NodeProxy };
    const server = createServer(proxy.nodeHandler);
    const origin = `http://127.0.0.1:${await listen(server)}`;

    // The upstream resets the kept connection when /again arrives on it, so /again needs a second attempt.
    upstream.script = (call) =>
      call.target === "/again" && call.link.calls.length > 1
        ? call.reset()
        : call.reply(call.target === "/a?secret" ? 200 : 503);
    const ask = async (path: string): Promise<number> => {
      const headers = { traceparent: `00-${TRACE}-${CLIENT}-01` };
      const response = await fetch(origin + path, { headers });
      await response.arrayBuffer();
      return response.status;
    };
    expect([await ask("/a?secret"), await ask("/again")]).toEqual([200, 503]);
    server.close();
    await proxy.close();
    await reader.forceFlush();

    const own = { "http.request.method": "GET", "server.address": "127.0.0.1" };
    const shared = { ...own, "server.port": Number(port), "url.scheme": "http" };
    const seen = spans.getFinishedSpans().map((span) => ({
      trace: span.spanContext().traceId,
      parent: span.parentSpanContext?.spanId,
      kind: span.kind,
      status: span.status.code,
      attributes: span.attributes,
    }));
    const common = { trace: TRACE, parent: CLIENT, kind: SpanKind.CLIENT };
    const again = { ...shared, "url.full": `${upstream.url}/again` };
    const ERROR = SpanStatusCode.ERROR;
    expect(seen).toEqual([
      {
        ...common,
        status: SpanStatusCode.UNSET,
        attributes: {
          ...shared,
          "url.full": `${upstream.url}/a`,
          "http.response.status_code": 200,
        },
      },
      {
        ...common,
        status: ERROR,
        attributes: { ...again, "error.type": "connection_terminated" },
      },
      {
        ...common,
        status: ERROR,
        attributes: { ...again, "http.response.status_code": 503, "error.type": "503" },
      },
    ]);
    // Each attempt sends its own span to the upstream as the parent.
    const parents = spans.getFinishedSpans().map((span) => span.spanContext().spanId);
    expect(upstream.calls.map((call) => call.get("traceparent"))).toEqual(
      parents.map((id) => `00-${TRACE}-${id}-01`),
    );

    const recorded = points
      .getMetrics()
      .at(-1)
      ?.scopeMetrics.flatMap((scope) => scope.metrics);
    const counts = (recorded ?? []).map(({ descriptor, dataPoints }) => [
      descriptor.name,
      descriptor.unit,
      dataPoints.map(({ value, attributes }) => [
        (value as { count: number }).count,
        attributes["http.response.status_code"],
        attributes["error.type"],
        attributes["http.route"],
      ]),
    ]);
    expect(counts).toEqual([
      [
        "http.server.request.duration",
        "s",
        [
          [1, 200, undefined, "/**"],
          [1, 503, "503", "/**"],
        ],
      ],
      [
        "http.client.request.duration",
        "s",
        [
          [1, 200, undefined, undefined],
          [1, undefined, "connection_terminated", undefined],
          [1, 503, "503", undefined],
        ],
      ],
    ]);
  } finally {
    rmSync(copy);
    await upstream.stop();
    await reader.shutdown();
  }
});
