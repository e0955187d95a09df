/** How errors of undici are converted. */
import { errors } from "undici";
import { expect, test } from "vitest";
import { toUndiciError } from "../../../runtimes/undici/undicierrors.ts";

const start = { isStarted: true, isAnswered: false, isStale: false };
test.each<[Error, Partial<typeof start>, string, number]>([
  [new errors.ConnectTimeoutError(), { isStarted: false }, "connection_timeout", 504],
  [new errors.HeadersTimeoutError(), {}, "http_response_timeout", 504],
  [new errors.BodyTimeoutError(), { isAnswered: true }, "connection_read_timeout", 504],
  [new errors.HeadersOverflowError(), {}, "http_response_header_section_size", 502],
  [new errors.SocketError("other side closed"), {}, "connection_terminated", 502],
  [new errors.SocketError("closed"), { isAnswered: true }, "http_response_incomplete", 502],
  [new errors.SocketError("bad upgrade"), {}, "http_protocol_error", 502],
  [new errors.ResponseContentLengthMismatchError(), {}, "http_response_incomplete", 502],
  [new errors.InvalidArgumentError(), { isStarted: false }, "http_request_error", 400],
  [new errors.ClientClosedError(), { isStarted: false }, "destination_unavailable", 503],
  [new errors.ClientDestroyedError(), {}, "destination_unavailable", 503],
  [new errors.BalancedPoolMissingUpstreamError(), {}, "destination_unavailable", 503],
  [new errors.MaxOriginsReachedError(), {}, "connection_limit_reached", 503],
  [new errors.ProxyConnectionError(), { isStarted: false }, "connection_refused", 502],
  [new errors.SecureProxyConnectionError(), { isStarted: false }, "tls_certificate_error", 502],
  [new errors.HTTPParserError("bad"), {}, "http_protocol_error", 502],
  [new Error("unknown"), {}, "proxy_internal_error", 500],
])("undici's error %s (%j) becomes %s", (error, progress, code, status) => {
  expect(toUndiciError(error, { ...start, ...progress })).toMatchObject({ code, status });
});

test("an HTTP/2 request that the upstream has not processed may be sent again", () => {
  const refused = new Error("Stream closed with error code NGHTTP2_REFUSED_STREAM");
  const left = new errors.InformationalError('HTTP/2: "GOAWAY" frame received with code 0');
  for (const error of [refused, left]) {
    const unprocessed = { code: "connection_terminated", unprocessed: true };
    expect(toUndiciError(error, start)).toMatchObject(unprocessed);
    expect(toUndiciError(error, { ...start, isAnswered: true }).unprocessed).toBe(false);
  }
});
