import { describe, expect, test } from "vitest";
import {
  placeError,
  ProxyError,
  type ErrorPlace,
  type ProxyErrorCode,
} from "../../../src/error.ts";
import { diagnoseError, explainError } from "../../../src/explain/errors.ts";
import { parseTarget } from "../../../src/target/target.ts";

/** Returns an error of a request to a target. */
function failedAt(
  target: string | ErrorPlace,
  code: ProxyErrorCode,
  init?: ConstructorParameters<typeof ProxyError>[1],
): ProxyError {
  const error = new ProxyError(code, init);
  placeError(error, typeof target === "string" ? parseTarget(target) : target);
  return error;
}

const refusal = Object.assign(new Error(), { code: "ECONNREFUSED", address: "::1", port: 4000 });

describe("the upstream in the explanation of an error", () => {
  test("if the error does not know the target, the explanation names the address in the error's cause", () => {
    expect(explainError(new ProxyError("connection_refused", { cause: refusal }))).toBe(
      "connection_refused: [::1]:4000 (is it running?)",
    );
    expect(explainError(new ProxyError("connection_refused"))).toBe(
      "connection_refused: the upstream (is it running?)",
    );
  });

  test.each([
    ["http://localhost:4000", "localhost:4000 at ::1"],
    ["http://[::1]:4000", "[::1]:4000"],
    ["http://[::1]", "[::1]"],
    ["unix:/run/app.sock", "/run/app.sock"],
  ])("the explanation names the target %s, with the address that was tried", (target, at) => {
    const error = failedAt(target, "connection_refused", { cause: refusal });
    expect(explainError(error)).toBe(`connection_refused: ${at} (is it running?)`);
  });

  test("the explanation names the upstream with the address that the target or a lookup has set", () => {
    const place = parseTarget({ url: "https://shop.example", address: "10.0.0.7" });
    expect(explainError(failedAt(place, "http_response_timeout"))).toMatch(
      /^http_response_timeout: shop\.example at 10\.0\.0\.7 does not answer /,
    );
  });

  test("the address replaces the words `the upstream` in the message of the error", () => {
    const message = "the upstream has refused the stream";
    expect(explainError(failedAt("https://a:4000", "connection_terminated", { message }))).toBe(
      "connection_terminated: a:4000 has refused the stream (see its log)",
    );
  });

  test("if several upstreams were set for an error, the first one counts", () => {
    const error = failedAt("http://a:1", "connection_refused");
    placeError(error, parseTarget("http://b:2"));
    expect(explainError(error)).toContain("a:1");
  });

  test("the address is in no member of the error itself", () => {
    const error = failedAt("http://a.example:4000", "connection_refused");
    const names = Reflect.ownKeys(error).filter((name) => name !== "stack");
    const values = names.map((name) => Reflect.get(error, name) as unknown);
    expect(JSON.stringify([error, values, String(error)])).not.toContain("a.example");
    expect(error.stack).not.toContain("a.example");
  });

  test("if the target has several upstreams, the first eight are listed with their states, and why they are down", () => {
    const states = Array.from({ length: 10 }, (_, i) => ({
      name: `http://a:${i}`,
      state: ["down", "up"][i] ?? "ejected",
      reason: ["3 checks failed", "a request succeeded"][i],
    }));
    const place = { states: () => states };
    const message = "no upstream can take the request";
    const explained = explainError(failedAt(place, "destination_unavailable", { message }));
    expect(explained).toMatch(
      /^destination_unavailable: no upstream can take the request: http:\/\/a:0 is down \(3 checks failed\), http:\/\/a:1 is up, /,
    );
    expect(explained).toContain(
      "http://a:7 is ejected, and 2 more (see the last failure of each, ",
    );
    const none = failedAt({ states: () => [] }, "destination_unavailable", { message });
    expect(explainError(none)).toBe(
      "destination_unavailable: no upstream can take the request: there is none (does its host name resolve?)",
    );
  });
});

describe("the explanation of an error", () => {
  test("never calls an error of an app a network failure", () => {
    const thrown = Object.assign(new Error("open x"), { code: "ENOENT", stack: "" });
    expect(explainError(thrown)).toBe("proxy_internal_error: Error: open x");
    const place = { ...parseTarget("http://a"), app: {} };
    const init = { message: "the target's fetch failed: no database", cause: refusal };
    expect(explainError(failedAt(place, "connection_terminated", init))).toMatch(
      /^connection_terminated: the target's fetch failed: no database, thrown at /,
    );
    expect(explainError("text")).toBe(
      "proxy_internal_error: something other than an Error was thrown",
    );
    expect(explainError(undefined)).toMatch(/^proxy_internal_error: /);
  });

  test.each(["connection_limit_reached", "proxy_internal_error"] as const)(
    "names the limit of open files if it is reached: %s",
    (code) => {
      const cause = Object.assign(new Error("connect EMFILE"), { code: "EMFILE" });
      expect(explainError(failedAt("http://a", code, { cause }))).toBe(
        `${code}: this process has too many open files (raise the limit by ulimit -n, or lower pool.maxSockets; or does the target lead back to this proxy? (via detects it))`,
      );
    },
  );

  test("explains an error of a runtime's `fetch` by the error of the socket behind it", () => {
    const socket = Object.assign(new Error("self-signed"), { code: "DEPTH_ZERO_SELF_SIGNED_CERT" });
    const cause = new TypeError("fetch failed", { cause: socket });
    expect(explainError(failedAt("https://a:1", "connection_terminated", { cause }))).toMatch(
      /^connection_terminated: a:1 has a self-signed certificate /,
    );
    const unnamed = new TypeError("fetch failed", { cause: new Error("bad port") });
    expect(explainError(failedAt("https://a:1", "connection_terminated", { cause: unnamed }))).toBe(
      "connection_terminated: the request to a:1 failed: bad port (is it running? see its log)",
    );
    const circle: { cause?: unknown } = {};
    circle.cause = circle;
    expect(explainError(failedAt("http://a:1", "dns_error", { cause: circle }))).toContain(
      "cannot find host a ",
    );
  });

  test.each([
    ["minRate", "the limit is pool.minRate; pool.maxSockets lets more requests run"],
    [
      "minRate of balance",
      "the limit is minRate of balance; maxRequests of balance lets more requests run",
    ],
  ])(
    "a client slower than %s is reported as `client_too_slow`, not with the code of the error",
    (limit, fix) => {
      const message = `the client moved fewer than 240 bytes a second (${limit}) while others waited`;
      const error = failedAt("http://a", "http_request_error", { status: 408, message });
      expect(explainError(error)).toBe(`client_too_slow: ${message} (${fix})`);
    },
  );

  test.each([
    [
      "no connection became free within 10000 ms: all 256 that maxSockets allows are in use",
      "a: ",
      "pool.maxSockets",
    ],
    [
      "9 requests wait (maxQueue): every upstream has the 5 requests that maxRequests allows, or is down or ejected",
      "",
      "maxRequests",
    ],
    ["9 requests wait (maxQueue): every upstream is down, ejected, or half-open", "", "maxQueue"],
  ])("names the limit for a request that waited and was never sent: %s", (message, at, bound) => {
    const text = explainError(failedAt("http://a", "connection_limit_reached", { message }));
    expect(text.startsWith(`connection_limit_reached: ${at}${message} (raise ${bound}`)).toBe(true);
  });

  test("does not suggest https:// if the connection already used TLS", () => {
    expect(explainError(failedAt("http://a", "connection_terminated"))).toContain("https://?");
    expect(explainError(failedAt("https://a", "connection_terminated"))).not.toContain("https://?");
    expect(explainError(failedAt("https://a", "http_protocol_error"))).not.toContain("https://?");
  });

  test("names options in the form that the caller asks for", () => {
    const { fix } = diagnoseError(failedAt("http://a", "connection_limit_reached"), (option) =>
      option.toUpperCase(),
    );
    expect(fix).toContain("raise POOL.MAXSOCKETS, POOL.MAXQUEUED or POOL.QUEUETIMEOUT");
  });

  test("puts no control character on the terminal", () => {
    const text = explainError(new TypeError("\u001b[2J\u009b1m\r\n\u202eevil"));
    expect(text).toContain("\\u{1b}[2J\\u{9b}1m\\u{d}\\n\\u{202e}evil");
  });

  test("leaves out the credentials of URLs", () => {
    const text = explainError(new TypeError("no https://user:secret@a.example/x here"));
    expect(text).toContain("no https://…@a.example/x here");
  });
});
