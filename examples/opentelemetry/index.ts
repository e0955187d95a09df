/**
 * Creates an OpenTelemetry span for each attempt, sends its trace context to the upstream, and records durations under
 * the stable names of OpenTelemetry:
 *
 *     npx srvx --import ./telemetry.ts index.ts     # or with bun run, deno serve -A
 *
 * `telemetry.ts` is the app's file that registers an SDK with its exporters. Without an SDK, the API does nothing.
 */
import {
  type Attributes,
  metrics,
  propagation,
  ROOT_CONTEXT,
  SpanKind,
  SpanStatusCode,
  type TextMapGetter,
  trace,
} from "@opentelemetry/api";
import { createProxy, ProxyError, type RequestEnd } from "fetchway";
import { getHeader, type HeaderList, type Interceptor, setHeader } from "fetchway/transport";

const tracer = trace.getTracer("fetchway");
const bounds = [0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10];
const inSeconds = { unit: "s", advice: { explicitBucketBoundaries: bounds } };
const meter = metrics.getMeter("fetchway");
const serverDuration = meter.createHistogram("http.server.request.duration", inSeconds);
const clientDuration = meter.createHistogram("http.client.request.duration", inSeconds);

const reader: TextMapGetter<HeaderList> = {
  get: (headers, name) => getHeader(headers, name.toLowerCase()),
  keys: (headers) => headers.filter((_, i) => i % 2 === 0),
};

/** Clients choose the method: without this list, each invented name would create another time series. */
const KNOWN = new Set("GET HEAD POST PUT DELETE CONNECT OPTIONS TRACE PATCH QUERY".split(" "));
const nameMethod = (method: string): string => (KNOWN.has(method) ? method : "_OTHER");
const nameError = (error: unknown): string =>
  error instanceof ProxyError ? error.code : error instanceof Error ? error.name : "_OTHER";

/** The span of an attempt is a child of the client's `traceparent`, and the parent of the upstream's spans. */
export const traceAttempt: Interceptor = (next) => async (request, scope) => {
  const { protocol, hostname, port } = new URL(request.upstream.origin);
  const attributes: Attributes = {
    "http.request.method": nameMethod(request.method),
    "server.address": hostname,
    "server.port": Number(port || (protocol === "https:" ? 443 : 80)),
    "url.scheme": protocol.slice(0, -1),
  };
  const parent = propagation.extract(ROOT_CONTEXT, request.headers, reader);
  // The query may hold secrets, so it is left out.
  const url = request.upstream.origin + request.path.split("?", 1)[0];
  const options = { kind: SpanKind.CLIENT, attributes: { ...attributes, "url.full": url } };
  const span = tracer.startSpan(nameMethod(request.method), options, parent);
  const fields: Record<string, string> = {};
  propagation.inject(trace.setSpan(parent, span), fields);
  let { headers } = request;
  for (const [name, value] of Object.entries(fields)) headers = setHeader(headers, name, value);

  const start = performance.now();
  try {
    const response = await next({ ...request, headers }, scope);
    attributes["http.response.status_code"] = response.status;
    if (response.status >= 400) attributes["error.type"] = String(response.status);
    return response;
  } catch (error) {
    attributes["error.type"] = nameError(error);
    throw error;
  } finally {
    if (attributes["error.type"] !== undefined) span.setStatus({ code: SpanStatusCode.ERROR });
    span.setAttributes(attributes).end();
    clientDuration.record((performance.now() - start) / 1000, attributes);
  }
};

export function recordRequest(end: RequestEnd): void {
  const { method, route, status, error, timings, request } = end;
  const attributes: Attributes = {
    "http.request.method": nameMethod(method),
    "http.response.status_code": status,
    "url.scheme": new URL(request.url).protocol.slice(0, -1),
    // The proxy's option `route`.
    ...(route !== undefined && { "http.route": route }),
  };
  if (error !== undefined) attributes["error.type"] = nameError(error);
  else if (status >= 500) attributes["error.type"] = String(status);
  serverDuration.record(timings.total / 1000, attributes);
}

export default createProxy({
  target: "http://127.0.0.1:4000",
  route: "/**",
  interceptors: { attempt: [traceAttempt] },
  onRequestEnd: recordRequest,
});
