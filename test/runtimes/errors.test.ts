/** How `explainError` explains the real failures of Node, Bun and Deno. No other text of an error may contain an address. */
import { once } from "node:events";
import { type AddressInfo, createServer } from "node:net";
import { expect, test } from "vitest";
import { createProxy, type CreateProxyOptions } from "#fetchway";
import { createUndiciTransport } from "../../runtimes/undici.ts";
import { explainError } from "../../src/explain/errors.ts";
import type { Interceptor } from "../../src/transport.ts";
import { startProgram } from "../helpers/program.ts";

const TRUST =
  "trust it by tls: { ca } of the target, or accept any by tls: { rejectUnauthorized: false }";
const TIMED = "see its log; the limit is timeout";

const EXPECTED: Record<string, string | RegExp> = {
  refused: "connection_refused: 127.0.0.1:DEAD (is it running?)",
  "refused by name":
    /^connection_refused: localhost:DEAD at (?:127\.0\.0\.1 and ::1|::1 and 127\.0\.0\.1) \(is it running\?\)$/,
  "no socket":
    "connection_refused: there is no socket /tmp/no-such.sock (is the upstream running? is the path right?)",
  "no such name": "dns_error: cannot find host no-such-host.invalid (is the name right?)",
  "self-signed": `tls_certificate_error: 127.0.0.1:TLS has a self-signed certificate (${TRUST})`,
  expired:
    "tls_certificate_error: the certificate of 127.0.0.1:OLD has expired (renew it, or accept any by tls: { rejectUnauthorized: false })",
  "another name":
    "tls_certificate_error: the certificate of 127.0.0.1:TLS is for another name: DNS:localhost, IP Address:127.0.0.1 " +
    "(use a name of the certificate in the target, or accept any by tls: { rejectUnauthorized: false })",
  // Deno's TLS server answers with an alert instead: see `DENO`.
  "plain HTTP to TLS":
    "connection_terminated: 127.0.0.1:TLS closed the connection without an answer (see its log; does it expect https://?)",
  "a TLS alert":
    "http_protocol_error: 127.0.0.1:ALERT speaks TLS (begin the target with https:// instead of http://)",
  "TLS to plain HTTP":
    "tls_protocol_error: 127.0.0.1:HTTP does not speak TLS (begin the target with http:// instead of https://)",
  "a silent TLS server":
    "connection_timeout: no connection to 127.0.0.1:SILENT in time " +
    "(is the target right? does a firewall drop packets? see connectTimeout)",
  // The text of the alert comes from the runtime's TLS library.
  "client certificate":
    /^tls_alert_received: localhost:MTLS refused TLS: .*certificate.?required \(does it need a client certificate, or another server name\?\)$/i,
  "closed at once":
    "connection_terminated: 127.0.0.1:CLOSER closed the connection without an answer (see its log; does it expect https://?)",
  reset: "connection_terminated: 127.0.0.1:RESETTER reset the connection (see its log)",
  "no response": `http_response_timeout: 127.0.0.1:SILENT does not answer: no response headers within 50 ms (${TIMED})`,
  "silent connection":
    "connection_read_timeout: 127.0.0.1:SILENT fell silent (see its log; the limits are idleTimeout and pool.timeout)",
  "not HTTP":
    "http_protocol_error: 127.0.0.1:SSH broke the rules of HTTP: its status line is malformed (is it an HTTP server? does it expect https://?)",
  "HTTP/2 only": "http_protocol_error: 127.0.0.1:H2 speaks HTTP/2 only (set http2)",
  "not HTTP/2": "http_protocol_error: 127.0.0.1:HTTP does not speak HTTP/2 (leave out http2)",
  "long head":
    "http_response_header_section_size: 127.0.0.1:LONG: its response head is longer than 16384 bytes " +
    "(shorten its header fields, such as cookies)",
  "long body":
    "http_request_error: the request body is over the limit of 1 bytes (raise bodyLimit to let it pass)",
  "a hook throws":
    /^proxy_internal_error: RangeError: no such\\nuser, thrown at (?:Object\.)?onRequest \(\/.*\/test\/runtimes\/_errors\.program\.ts:\d+:\d+\)$/,
  "response cut":
    "http_response_incomplete: 127.0.0.1:CUT closed the connection in the middle of the response (see its log)",
  "every upstream down":
    "destination_unavailable: no upstream can take the request: http://127.0.0.1:DEAD is down (a check failed: connection_refused), " +
    "http://127.0.0.1:SILENT is down (a check failed: http_response_timeout) (see the last failure of each, and their logs)",
  "the second upstream refused as well":
    /^connection_refused: (?:127\.0\.0\.1:DEAD|localhost:DEAD at .*) \(is it running\?\)$/,
  redirected: "connection_refused: 127.0.0.1:DEAD (is it running?)",
  "an app throws":
    /^connection_terminated: the target's fetch failed: no such user, thrown at (?:Object\.)?fetch \(\/.*\/test\/runtimes\/_errors\.program\.ts:\d+:\d+\)$/,
  "fetch refused": "connection_refused: 127.0.0.1:DEAD (is it running?)",
  "fetch cut":
    /^http_response_incomplete: 127\.0\.0\.1:CUT2 (?:closed the connection in the middle of the response|reset the connection) \(see its log\)$/,
};

/**
 * The differences on Deno. Its TLS does not accept a self-signed certificate as an authority, even if `ca` contains
 * it.
 */
const DENO = {
  "plain HTTP to TLS":
    "http_protocol_error: 127.0.0.1:TLS speaks TLS (begin the target with https:// instead of http://)",
  expired: `tls_certificate_error: the certificate of 127.0.0.1:OLD is from an authority that is not trusted here (${TRUST})`,
};

test.each([
  ["node", ["test/runtimes/_errors.program.ts"]],
  ["bun", ["test/runtimes/_errors.program.ts"]],
  ["deno", ["run", "-A", "test/runtimes/_errors.program.ts"]],
])(
  "on %s, `explainError` explains each kind of real failure, and no text that clients see contains an address",
  async (tool, args) => {
    await using program = startProgram(tool, args);
    await program.ended();
    type Failures = Record<string, { explained: string; hooked?: string; shown: string }>;
    const failures = JSON.parse(program.output()) as Failures;
    expect(Object.keys(failures)).toEqual(Object.keys(EXPECTED));
    const wanted = { ...EXPECTED, ...(tool === "deno" && DENO) };
    for (const [name, expected] of Object.entries(wanted)) {
      const { explained, hooked = explained, shown } = failures[name] as Failures[string];
      if (name !== "the second upstream refused as well") expect(hooked).toBe(explained);
      if (typeof expected === "string") expect(explained).toBe(expected);
      else expect(explained).toMatch(expected);
      if (!name.endsWith("cut")) expect(shown, name).toContain(/^\w+/.exec(explained)?.[0]);
      expect(shown, name).not.toMatch(/127\.0\.0\.1|::1|localhost|\.invalid|\.sock|:[A-Z]+\b/);
    }
  },
);

/** Returns the URL of a port on which nothing listens. Port 1 would not do, because `fetch` refuses it. */
async function findDead(): Promise<string> {
  const server = createServer().listen(0, "127.0.0.1");
  await once(server, "listening");
  const { port } = server.address() as AddressInfo;
  server.close();
  return `http://127.0.0.1:${port}`;
}

test.each<[client: string, options: Partial<CreateProxyOptions>]>([
  ["HTTP/1.1", {}],
  ["HTTP/2", { pool: { http2: true } }],
  ["fetch", { fetch: globalThis.fetch }],
  ["undici", { transport: createUndiciTransport() }],
])("in an interceptor of attempts, `explainError` names the upstream: %s", async (_, options) => {
  const seen: string[] = [];
  const explain: Interceptor = (next) => (request, scope) =>
    next(request, scope).catch((error: unknown) => {
      seen.push(explainError(error));
      throw error;
    });
  const interceptors = { attempt: [explain] };
  const target = await findDead();
  const proxy = createProxy({ target, log: false, retry: false, ...options, interceptors });
  const response = await proxy.fetch(new Request("http://proxy.test/"));
  expect(response.status).toBe(502);
  expect(seen).toEqual([`connection_refused: ${target.slice(7)} (is it running?)`]);
  await proxy.close();
});
