import { getHeaders, removeHeader, type HeaderList } from "../fields/headers.ts";

/** Matches a `traceparent` of any version: version, trace, parent and flags. Later versions may append more fields. */
const TRACEPARENT = /^(?!ff)[\da-f]{2}-(?!0{32})[\da-f]{32}-(?!0{16})[\da-f]{16}-[\da-f]{2}(?:$|-)/;

/**
 * Starts a trace in the fields of a request, in place, unless they belong to a trace already. A `traceparent` that is not
 * valid, or not the only one, is replaced, and `tracestate` is dropped with it.
 * @see https://www.w3.org/TR/trace-context/#processing-model
 */
export function startTrace(headers: HeaderList): void {
  const parents = getHeaders(headers, "traceparent");
  if (parents.length === 1 && isTraceParent(parents[0] as string)) return;
  removeHeader(headers, "traceparent");
  removeHeader(headers, "tracestate");
  headers.push("traceparent", createTraceParent());
}

function isTraceParent(value: string): boolean {
  // Version 00 has exactly four fields.
  return TRACEPARENT.test(value) && !(value.startsWith("00") && value.length > 55);
}

/**
 * Returns a new `traceparent` with the flag `sampled`. The trace has the digits of a random UUID, and its first span the last
 * half of them, as in Zipkin. That is faster than random bytes in hexadecimal, and the version and the variant of a UUID make
 * sure that neither id is all zeros.
 */
function createTraceParent(): string {
  const digits = crypto.randomUUID().replaceAll("-", "");
  return `00-${digits}-${digits.slice(16)}-01`;
}
