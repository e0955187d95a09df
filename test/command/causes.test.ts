/** The command explains failures as the library does, with the names of its flags. */
import { expect, test } from "vitest";
import { flags } from "../../command/flags/flags.ts";
import { diagnoseFailure, isClientSlow } from "../../command/log/causes.ts";
import { ProxyError, type ProxyErrorCode, type ProxyErrorInit } from "../../src/error.ts";

const withCause = (code: string): ProxyErrorInit => ({
  cause: Object.assign(new Error(), { code }),
});

/** Errors whose fixes together name every option that any fix names. */
const ERRORS: readonly (readonly [code: ProxyErrorCode, init?: ProxyErrorInit])[] = [
  ["tls_certificate_error"],
  ["connection_timeout"],
  ["connection_read_timeout"],
  ["connection_read_timeout", { message: "the tunnel did not end within 5 ms" }],
  ["connection_limit_reached"],
  ["connection_limit_reached", withCause("EADDRNOTAVAIL")],
  ["http_response_timeout"],
  ["http_response_timeout", { message: "an attempt took longer than 5 ms" }],
  ["http_protocol_error", { message: "the upstream does not speak HTTP/2" }],
  ["http_request_error", { status: 408 }],
  ["http_request_error", { status: 408, message: "too slow (minRate)" }],
  ["http_request_error", { status: 413 }],
  ["http_request_error", { status: 431 }],
  ["http_request_error", { status: 503 }],
  ["http_request_error", { status: 503, message: "all connections of this address are in use" }],
];

test("the advice about each kind of failure names flags of the command, and no options of the library", () => {
  const known = new Set(flags.map(({ name }) => `--${name}`));
  const fixes = ERRORS.map(([code, init]) => diagnoseFailure(new ProxyError(code, init)).fix ?? "");
  const named = fixes.flatMap((fix) => fix.match(/--[\w-]+/g) ?? []);
  expect(named.filter((flag) => !known.has(flag))).toEqual([]);
  expect(fixes.filter((fix) => !fix.includes("--"))).toEqual([]);
  expect(fixes.join()).not.toMatch(/pool\.|tls\.|[a-z][A-Z]/);
  expect(fixes).toContain("trust it by --ca <file>, or accept any by --insecure");
  expect(fixes).toContain("see its log; the limits are --idle-timeout and --socket-timeout");
});

test("a failure because of bytes that are not HTTP gets no advice about limits", () => {
  const message = "the bytes are not valid HTTP";
  expect(diagnoseFailure(new ProxyError("http_request_error", { message })).fix).toBeUndefined();
});

test("a 408 because of `minRate` counts as a slow client, and the server's own 408 does not", () => {
  const of408 = (message: string): ProxyError =>
    new ProxyError("http_request_error", { status: 408, message });
  expect(isClientSlow(of408("too slow (minRate)"))).toBe(true);
  expect(isClientSlow(of408("the header section took too long"))).toBe(false);
  expect(isClientSlow(new Error("(minRate)"))).toBe(false);
});
