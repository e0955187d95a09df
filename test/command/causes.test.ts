import { describe, expect, test } from "vitest";
import { diagnoseFailure, renderFailure } from "../../command/log/causes.ts";
import { ProxyError } from "../../src/error.ts";
import { startProgram } from "../helpers/program.ts";

const TRUST = "trust it by --ca <file>, or accept any by --insecure";
const TIMED = "see its log; the limit is --timeout";

const EXPECTED: Record<string, string | RegExp> = {
  refused: "connection_refused: 127.0.0.1:DEAD (is it running?)",
  "refused by name":
    /^connection_refused: localhost:DEAD at (?:127\.0\.0\.1 and ::1|::1 and 127\.0\.0\.1) \(is it running\?\)$/,
  "no socket":
    "connection_refused: there is no socket /tmp/no-such.sock (is the upstream running? is the path right?)",
  "no such name": "dns_error: cannot find host no-such-host.invalid (is the name right?)",
  "self-signed": `tls_certificate_error: 127.0.0.1:TLS has a self-signed certificate (${TRUST})`,
  expired:
    "tls_certificate_error: the certificate of 127.0.0.1:OLD has expired (renew it, or accept any by --insecure)",
  "another name":
    "tls_certificate_error: the certificate of 127.0.0.1:TLS is for another name: DNS:localhost, IP Address:127.0.0.1 " +
    "(use a name of the certificate in the target, or accept any by --insecure)",
  "TLS to plain HTTP":
    "tls_protocol_error: 127.0.0.1:HTTP does not speak TLS (is the target http:// instead of https://?)",
  "a silent TLS server":
    "connection_timeout: no connection to 127.0.0.1:SILENT in time " +
    "(is the target right? does a firewall drop packets? see --connect-timeout)",
  // The text of the alert comes from the runtime's TLS library.
  "client certificate":
    /^tls_alert_received: localhost:MTLS refused TLS: .*certificate.?required \(does it need a client certificate, or another server name\?\)$/i,
  "closed at once":
    "connection_terminated: 127.0.0.1:CLOSER closed the connection without an answer (see its log; does it expect https://?)",
  reset: "connection_terminated: 127.0.0.1:RESETTER reset the connection (see its log)",
  "no response": `http_response_timeout: 127.0.0.1:SILENT does not answer: no response headers within 50 ms (${TIMED})`,
  "silent connection":
    "connection_read_timeout: 127.0.0.1:SILENT fell silent (see its log; the limits are --idle-timeout and --socket-timeout)",
  "not HTTP":
    "http_protocol_error: 127.0.0.1:SSH broke the rules of HTTP: its status line is malformed (is it an HTTP server? does it expect https://?)",
  "not HTTP/2": "http_protocol_error: 127.0.0.1:HTTP does not speak HTTP/2 (leave out --http2)",
  "long head":
    "http_response_header_section_size: 127.0.0.1:LONG: its response head is longer than 16384 bytes " +
    "(shorten its header fields, such as cookies)",
  "long body":
    "http_request_error: the request body is over the limit of 1 bytes (raise --body-limit to let it pass)",
  "a hook throws":
    /^proxy_internal_error: RangeError: no such\\nuser, thrown at (?:Object\.)?onRequest \(\/.*\/test\/command\/_causes\.ts:\d+:\d+\)$/,
  "response cut":
    "http_response_incomplete: 127.0.0.1:CUT closed the connection in the middle of the response (see its log)",
};

/** Deno's TLS does not accept a self-signed certificate as an authority, even if `ca` contains it. */
const DENO = {
  expired: `tls_certificate_error: the certificate of 127.0.0.1:OLD is from an authority that is not trusted here (${TRUST})`,
};

test.each([
  ["node", ["test/command/_causes.ts"]],
  ["bun", ["test/command/_causes.ts"]],
  ["deno", ["run", "-A", "test/command/_causes.ts"]],
])("%s's real failures are explained", async (tool, args) => {
  await using program = startProgram(tool, args);
  await program.ended();
  const said = JSON.parse(program.output()) as Record<string, string>;
  expect(Object.keys(said)).toEqual(Object.keys(EXPECTED));
  const wanted = { ...EXPECTED, ...(tool === "deno" && DENO) };
  for (const [name, expected] of Object.entries(wanted)) {
    if (typeof expected === "string") expect(said[name]).toBe(expected);
    else expect(said[name]).toMatch(expected);
  }
});

describe("a failure", () => {
  const explained = (error: unknown, upstream?: string): string =>
    renderFailure(diagnoseFailure(error, upstream));

  test("without an upstream is explained by the address of its cause", () => {
    const cause = Object.assign(new Error(), { code: "ECONNREFUSED", address: "::1", port: 4000 });
    const error = new ProxyError("connection_refused", { cause });
    expect(explained(error)).toBe("connection_refused: [::1]:4000 (is it running?)");
    expect(explained(error, "http://localhost:4000")).toBe(
      "connection_refused: localhost:4000 at ::1 (is it running?)",
    );
    expect(explained(error, "http://[::1]:4000")).toBe(
      "connection_refused: [::1]:4000 (is it running?)",
    );
  });

  test("names the upstream if the message of the error does not", () => {
    const message = "the upstream has refused the stream";
    const error = new ProxyError("connection_terminated", { message });
    expect(explained(error, "https://a:4000")).toMatch(
      /^connection_terminated: a:4000 has refused the stream /,
    );
  });

  test("of a hook cannot be mistaken for a network failure", () => {
    const thrown = Object.assign(new Error("open x"), { code: "ENOENT", stack: "" });
    expect(explained(thrown, "http://a")).toBe("proxy_internal_error: Error: open x");
    expect(explained("text")).toBe(
      "proxy_internal_error: something other than an Error was thrown",
    );
  });

  test.each(["connection_limit_reached", "proxy_internal_error"] as const)(
    "of too many open files names the limit: %s",
    (code) => {
      const cause = Object.assign(new Error("connect EMFILE"), { code: "EMFILE" });
      expect(explained(new ProxyError(code, { cause }), "http://a")).toBe(
        `${code}: this process has too many open files (raise the limit by ulimit -n, or lower --max-sockets)`,
      );
    },
  );

  test("of a client that was too slow has its own name", () => {
    const message = "the client moved fewer than 240 bytes a second (minRate) while others waited";
    const error = new ProxyError("http_request_error", { status: 408, message });
    expect(explained(error, "http://a")).toBe(
      `client_too_slow: ${message} (the limit is --min-rate; --max-sockets lets more requests run)`,
    );
  });

  test.each([
    ["no connection became free within 10000 ms: all 256 that maxSockets allows are in use", "a: "],
    ["9 requests wait (maxQueue): every upstream has the 5 requests that maxRequests allows", ""],
  ])("of a request that waited and was never sent names the limit: %s", (message, at) => {
    const bound = at === "" ? "maxRequests" : "--max-sockets";
    const error = new ProxyError("connection_limit_reached", { message });
    const text = explained(error, "http://a");
    expect(text.startsWith(`connection_limit_reached: ${at}${message} (raise ${bound}`)).toBe(true);
  });

  test("cannot put a control character on the terminal", () => {
    const text = explained(new TypeError("\u001b[2J\u009b1m\r\n\u202eevil"));
    expect(text).toContain("\\u{1b}[2J\\u{9b}1m\\u{d}\\n\\u{202e}evil");
  });
});
