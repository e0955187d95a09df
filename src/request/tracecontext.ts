import { getHeaders, removeHeader, type HeaderList } from "../fields/headers.ts";

/**
 * Matches a `traceparent` of any version: version, trace, parent and flags. Version 00 has exactly these four fields, 55
 * characters; later versions may append more.
 */
const TRACEPARENT =
  /^(?!ff|00.{54})[\da-f]{2}-(?!0{32})[\da-f]{32}-(?!0{16})[\da-f]{16}-[\da-f]{2}(?:$|-)/;

/**
 * Starts a trace in the fields of a request, in place, unless they belong to a trace already. A `traceparent` that is not
 * valid, or not the only one, is replaced, and `tracestate` is dropped with it.
 * @see https://www.w3.org/TR/trace-context/#processing-model
 */
export function startTrace(headers: HeaderList): void {
  const parents = getHeaders(headers, "traceparent");
  if (parents.length === 1 && TRACEPARENT.test(parents[0] as string)) return;
  removeHeader(headers, "traceparent");
  removeHeader(headers, "tracestate");
  headers.push("traceparent", createTraceParent());
}

/** Random numbers for 128 traces. A call of `getRandomValues` for each trace would take longer than the rest of its start. */
const random = new BigUint64Array(256);
let used = random.length;

/**
 * Returns a new `traceparent` with the flag `sampled`. The id of the first span is the second half of the id of the trace, as
 * in Zipkin. The lowest bit of that half is set, because an id must not be all zeros.
 */
function createTraceParent(): string {
  if (used === random.length) {
    crypto.getRandomValues(random);
    used = 0;
  }
  const first = toDigits(random[used++] as bigint);
  const last = toDigits((random[used++] as bigint) | 1n);
  return `00-${first}${last}-${last}-01`;
}

function toDigits(half: bigint): string {
  return half.toString(16).padStart(16, "0");
}
