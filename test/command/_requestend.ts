import type { RequestEnd } from "#fetchway";

/** Returns the `RequestEnd` of a successful request, with these members replaced. */
export function endOf(differences: Partial<RequestEnd> = {}): RequestEnd {
  return {
    method: "GET",
    path: "/a?b=c",
    route: undefined,
    authority: "proxy.test",
    clientAddress: "192.0.2.7",
    upstream: "http://127.0.0.1:4000",
    status: 200,
    protocol: undefined,
    error: undefined,
    attempts: 1,
    reused: true,
    traceparent: undefined,
    bytesIn: 0,
    bytesOut: 2326,
    startedAt: Date.UTC(2026, 9, 10, 13, 55, 36, 250),
    timings: { held: undefined, queue: 0.5, connect: 1.5, firstByte: 3, total: 3.25 },
    request: new Request("http://proxy.test/a?b=c"),
    ...differences,
  };
}
