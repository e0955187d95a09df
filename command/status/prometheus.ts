import { limitOfOpenFiles } from "#fetchway/node";
import { BOUNDS, type Metrics, type Snapshot } from "./metrics.ts";

type Labels = Readonly<Record<string, string | undefined>>;
type Sample = readonly [labels: Labels, value: number];

/** The media type of the text. */
export const PROMETHEUS_TYPE = "text/plain; version=0.0.4; charset=utf-8";

/**
 * Renders the counters for Prometheus. Metrics that OpenTelemetry defines have its names, in the spelling of
 * Prometheus.
 * @see https://prometheus.io/docs/instrumenting/exposition_formats/
 * @see https://opentelemetry.io/docs/specs/semconv/http/http-metrics/
 */
export function renderMetrics(metrics: Metrics): string {
  const snapshot = metrics.snapshot();
  const { total, upstreams, connections, version, runtime } = snapshot;
  const { memory, cpu } = metrics.usage();
  const byUpstream = (of: (upstream: Snapshot["upstreams"][number]) => number): Sample[] =>
    upstreams.map((each) => [{ upstream: each.name }, of(each)]);
  const families = [
    renderDurations(metrics),
    renderFamily(
      "fetchway_errors_total",
      "counter",
      "Requests that failed, by error type (RFC 9209), and those whose client disconnected.",
      Array.from(metrics.errors, ([name, count]): Sample => [{ error_type: name }, count]),
    ),
    renderFamily(
      "fetchway_tunnels_total",
      "counter",
      "Tunnels that have ended, such as WebSockets, by protocol.",
      Array.from(metrics.tunnels, ([name, count]): Sample => [{ protocol: name }, count]),
    ),
    renderFamily("fetchway_retries_total", "counter", "Further attempts to send a request.", [
      [{}, total.retries],
    ]),
    renderFamily(
      "fetchway_request_body_bytes_total",
      "counter",
      "Bytes of request bodies, and of tunnels from clients.",
      [[{}, total.bytesIn]],
    ),
    renderFamily(
      "fetchway_response_body_bytes_total",
      "counter",
      "Bytes of response bodies, and of tunnels to clients.",
      [[{}, total.bytesOut]],
    ),
    renderFamily(
      "fetchway_upstream_requests_total",
      "counter",
      "Requests to an upstream; to one of several, each attempt.",
      byUpstream((each) => each.requests),
    ),
    renderFamily(
      "fetchway_upstream_failures_total",
      "counter",
      "Requests to an upstream that failed, or got a status from 500; to one of several, each attempt.",
      byUpstream((each) => each.failed),
    ),
    renderFamily(
      "http_client_open_connections",
      "gauge",
      "Connections to an upstream by state.",
      upstreams.flatMap(({ name, inUse, free, tunnels }): Sample[] => [
        [{ upstream: name, http_connection_state: "active" }, inUse],
        [{ upstream: name, http_connection_state: "idle" }, free],
        [{ upstream: name, http_connection_state: "tunnel" }, tunnels],
      ]),
    ),
    renderFamily(
      "fetchway_waiting_requests",
      "gauge",
      "Requests that wait for a connection to an upstream, or for a place at any of several.",
      [
        ...byUpstream((each) => each.waiting),
        ...(connections?.waitingForAny === undefined
          ? []
          : [[{ upstream: "any" }, connections.waitingForAny] satisfies Sample]),
      ],
    ),
    renderFamily(
      "fetchway_upstream_up",
      "gauge",
      "Whether one of several upstreams gets requests: 0 if it is ejected, down or being removed.",
      upstreams.flatMap(({ name, health }): Sample[] => {
        const isOut = health === "ejected" || health === "down" || health === "draining";
        return health === undefined ? [] : [[{ upstream: name }, isOut ? 0 : 1]];
      }),
    ),
    ...(connections === undefined
      ? []
      : [
          renderFamily(
            "fetchway_connections_created_total",
            "counter",
            "Connections that were opened.",
            [[{}, connections.created]],
          ),
          renderFamily(
            "fetchway_connections_closed_total",
            "counter",
            "Connections that were closed, by either side.",
            [[{}, connections.closed]],
          ),
          renderFamily(
            "fetchway_connections_failed_total",
            "counter",
            "Connections that could not be opened.",
            [[{}, connections.failed]],
          ),
          renderFamily(
            "fetchway_connections_timed_out_total",
            "counter",
            "Connections that were closed because they were silent for too long.",
            [[{}, connections.timedOut]],
          ),
          ...renderLimit(
            "fetchway_max_sockets",
            "The maximum number of connections to one origin.",
            connections.maxSockets,
          ),
        ]),
    ...renderHeld(snapshot),
    ...renderClients(snapshot),
    ...renderLimit("process_max_fds", "Files that a process may have open.", limitOfOpenFiles()),
    ...renderWorkers(snapshot),
    renderFamily(
      "process_start_time_seconds",
      "gauge",
      "When the counting began, in seconds since 1970.",
      [[{}, snapshot.startedAt / 1000]],
    ),
    renderFamily("process_cpu_seconds_total", "counter", "CPU time of the process.", [[{}, cpu]]),
    renderFamily("process_resident_memory_bytes", "gauge", "Memory of the process.", [
      [{}, memory],
    ]),
    renderFamily(
      "fetchway_build_info",
      "gauge",
      "Always 1; the labels are the version and the runtime.",
      [[{ version, runtime }, 1]],
    ),
  ];
  return families.join("");
}

/**
 * Renders a limit. Returns no lines if the limit is infinite or not known. Workers report their limits as JSON, in which
 * Infinity is null.
 */
function renderLimit(name: string, help: string, limit: number | null | undefined): string[] {
  const isLimited = limit !== null && limit !== undefined && limit !== Infinity;
  return isLimited ? [renderFamily(name, "gauge", help, [[{}, limit]])] : [];
}

/** Renders the requests that wait for an upstream. Returns no lines if no route has the option `wait`. */
function renderHeld({ connections, total }: Snapshot): string[] {
  if (connections?.held === undefined) return [];
  return [
    renderFamily(
      "fetchway_requests_held",
      "gauge",
      "Requests that wait for an upstream to come back.",
      [[{}, connections.held]],
    ),
    renderFamily(
      "fetchway_held_requests_total",
      "counter",
      "Requests that have ended and had waited for an upstream to come back.",
      [[{}, total.held]],
    ),
    renderFamily(
      "fetchway_held_seconds_total",
      "counter",
      "Seconds for which these requests have waited.",
      [[{}, total.heldSeconds]],
    ),
  ];
}

function renderClients({ clients }: Snapshot): string[] {
  if (clients === undefined) return [];
  return [
    renderFamily("fetchway_client_connections", "gauge", "Connections of clients.", [
      [{}, clients.connections],
    ]),
    renderFamily(
      "fetchway_client_connections_refused_total",
      "counter",
      "New connections of clients that were refused at a limit.",
      [[{}, clients.refused]],
    ),
    renderFamily(
      "fetchway_client_connections_evicted_total",
      "counter",
      "Idle connections of clients that were closed at a limit, or in an overload.",
      [[{}, clients.evicted]],
    ),
    renderFamily(
      "fetchway_overloaded_processes",
      "gauge",
      "Overloaded processes, which refuse some of the new clients.",
      [[{}, clients.overloaded]],
    ),
    renderFamily(
      "fetchway_slow_clients_total",
      "counter",
      "Requests and connections that ended because the client was too slow.",
      [
        [{ reason: "body" }, clients.slowBodies],
        [{ reason: "read" }, clients.slowReaders],
      ],
    ),
  ];
}

function renderWorkers({ workers }: Snapshot): string[] {
  if (workers === undefined) return [];
  return [
    renderFamily("fetchway_workers", "gauge", "Worker processes by state.", [
      [{ state: "running" }, workers.running],
      [{ state: "retired" }, workers.retired],
    ]),
    renderFamily(
      "fetchway_worker_restarts_total",
      "counter",
      "Worker processes that were started in place of one that had died or was hung.",
      [[{}, workers.restarts]],
    ),
  ];
}

const DURATION = "http_server_request_duration_seconds";

function renderDurations({ series }: Metrics): string {
  const lines = [...series.values()].flatMap((each) => {
    const { method, route, status, errorType, isOverflow, buckets, sum, count } = each;
    const labels: Labels = isOverflow
      ? { otel_metric_overflow: "true" }
      : {
          http_request_method: method,
          http_route: route,
          http_response_status_code: String(status),
          error_type: errorType,
        };
    let below = 0;
    const samples = BOUNDS.map((bound, i) => {
      below += buckets[i] as number;
      return renderSample(`${DURATION}_bucket`, { ...labels, le: String(bound) }, below);
    });
    samples.push(
      renderSample(`${DURATION}_bucket`, { ...labels, le: "+Inf" }, count),
      renderSample(`${DURATION}_sum`, labels, sum),
      renderSample(`${DURATION}_count`, labels, count),
    );
    return samples;
  });
  return (
    describeFamily(
      DURATION,
      "histogram",
      "Time from a request to the end of its response; tunnels are left out.",
    ) + lines.join("")
  );
}

function renderFamily(
  name: string,
  type: "counter" | "gauge",
  help: string,
  samples: readonly Sample[],
): string {
  const lines = samples.map(([labels, value]) => renderSample(name, labels, value));
  return describeFamily(name, type, help) + lines.join("");
}

function describeFamily(name: string, type: string, help: string): string {
  return `# HELP ${name} ${help}\n# TYPE ${name} ${type}\n`;
}

function renderSample(name: string, labels: Labels, value: number): string {
  const pairs = Object.entries(labels).flatMap(([label, text]) =>
    text === undefined ? [] : [`${label}="${escapeLabel(text)}"`],
  );
  return `${name}${pairs.length === 0 ? "" : `{${pairs.join(",")}}`} ${value}\n`;
}

/** Escapes the value of a label: a backslash, a quote, and a line feed. */
function escapeLabel(text: string): string {
  return text.replaceAll("\\", "\\\\").replaceAll('"', '\\"').replaceAll("\n", "\\n");
}
