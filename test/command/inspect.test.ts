/** `--inspect` shows the upstream request that would be sent, and the reason for each of its lines. */
import { createServer } from "node:http";
import * as fc from "fast-check";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { DROPPED_REASONS, explainFields } from "../../src/explain/decidingoptions.ts";
import type { ExplainedField } from "../../src/proxy.ts";
import { capture, renderInspection } from "../../command/inspect/inspect.ts";
import { readInspected } from "../../command/inspect/inspectedrequest.ts";
import {
  type GivenFlags,
  type ReadConfig,
  type Settings,
  toSettings,
} from "../../command/config/settings.ts";
import { HOP_BY_HOP, REQUEST_DROPPED } from "../../src/fields/hopbyhop.ts";
import { compile } from "../../src/plan.ts";
import type { ProxyOptions } from "../../src/options/proxyoptions.ts";
import { toUpstreamRequest } from "../../src/request/outgoing.ts";
import { parseTarget } from "../../src/target/target.ts";
import type { HeaderList } from "../../src/fields/headers.ts";
import { fakeIncoming, FakeTransport } from "../helpers/fakes.ts";
import { startProgram } from "../helpers/program.ts";
import { listen } from "../helpers/serve.ts";
import { within } from "../helpers/wait.ts";

let asked = 0;
const upstream = createServer((_, res) => {
  asked++;
  res.end();
});
let target = "";
beforeAll(async () => {
  target = `http://127.0.0.1:${await listen(upstream)}`;
});
afterAll(() => {
  upstream.close();
  expect(asked).toBe(0);
});

function settingsOf(config: ReadConfig): Settings {
  const none: GivenFlags = { server: {}, proxy: {}, routes: [], target: undefined };
  return toSettings(none, config);
}

async function show(config: ReadConfig, request: string, ...fields: string[]): Promise<string> {
  const inspected = readInspected(request, fields);
  return renderInspection(inspected, await capture(inspected, settingsOf(config)));
}

/** Returns the reason that is shown beside a line. */
function reasonOf(text: string, line: string): string | undefined {
  const rows = text.split("\n");
  const index = rows.findIndex((row) => row.startsWith(`  ${line}`));
  const own = rows[index]?.slice(2 + line.length).trim();
  return own === "" ? rows[index + 1]?.trim() : own;
}

test("--inspect shows the upstream request line by line, each line with its reason", async () => {
  const config: ReadConfig = {
    via: "edge",
    filterHeaders: ["cookie"],
    routes: [
      {
        match: "/api",
        target: `${target}/v1?key=s3cret`,
        stripPrefix: "/api",
        headers: { authorization: "Bearer s3cret", "x-app": "shop" },
      },
    ],
  };
  const text = await show(
    config,
    "POST http://shop.example:8080/api/a%2Fb?c",
    "Connection: X-Hop",
    "X-Hop: 1",
    "X-Forwarded-For: 1.2.3.4",
    "Accept: */*",
    "Cookie: a=b",
    "Authorization: theirs",
  );
  const host = target.replace("http://", "");
  expect(text).not.toContain("s3cret");
  expect(text).toContain(`route /api → ${target}\n`);
  const rows = {
    "POST /v1/a%2Fb?…&c HTTP/1.1": "stripPrefix, then the target's path or query in front",
    [`Host: ${host}`]: "the target's (changeOrigin, RFC 9110 §7.2)",
    "Accept: */*": "the client's",
    "X-Forwarded-For: 127.0.0.1": "xfwd: about the client (RFC 7239 §5)",
    "X-Forwarded-Host: shop.example:8080": "xfwd: about the client (RFC 7239 §5)",
    "Via: 1.1 edge": "via: names this proxy (RFC 9110 §7.6.3)",
    "authorization: (not shown)": "headers: set",
    "x-app: shop": "headers: set",
    "Content-Length: 0": "the framing follows the body (RFC 9112 §6.3)",
    "Connection: keep-alive": "about the connection to the upstream (RFC 9110 §7.6.1)",
    "Connection: X-Hop": "belongs to one connection (RFC 9110 §7.6.1)",
    "X-Hop: 1": "named in Connection (RFC 9110 §7.6.1)",
    "X-Forwarded-For: 1.2.3.4":
      "a client could forge it (RFC 7239 §8.1); see trustProxy, forwardHeaders",
    "Cookie: a=b": "filterHeaders: dropped",
  };
  const shown = Object.keys(rows).map((line) => [line, reasonOf(text, line)]);
  expect(Object.fromEntries(shown)).toEqual(rows);
});

test("--inspect shows no field as dropped that is sent unchanged", async () => {
  const upgrade = ["Connection: Upgrade", "Upgrade: websocket"];
  const text = await show(
    { target, changeOrigin: false },
    "http://shop.example/",
    ...upgrade,
    "Sec-WebSocket-Version: 13",
    "Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==",
  );
  expect(text).toMatch(/^ {2}Host: shop\.example/m);
  expect(text).toMatch(/^ {2}Upgrade: websocket/m);
  expect(text).not.toContain("not forwarded");
});

test.each<ReadConfig>([
  {},
  { heartbeat: 1000 },
  { onRequest: ({ headers }) => headers.set("x-hook", "1") },
])("--inspect names the option that makes the proxy start a trace, also with %j", async (more) => {
  const config = { target, startTrace: true, ...more };
  const text = await show(config, "http://shop.example/", "tracestate: a=1");
  expect(text).toMatch(
    /^ *traceparent: 00-[\da-f]{32}-[\da-f]{16}-01\s+startTrace: starts a trace$/m,
  );
  expect(reasonOf(text, "tracestate: a=1")).toBe("startTrace: has no valid traceparent");
});

describe("--inspect shows the answer to a request that is not forwarded", () => {
  test.each<[string, ReadConfig, string, ...string[]]>([
    ["http://a/else", {}, "404: Not Found: no route for this host and path"],
    [
      "http://a/x/..%2fy",
      { target: "http://127.0.0.1:1/base" },
      "400: the request path could leave",
    ],
    [
      "http://a/",
      {
        target: "http://127.0.0.1:1",
        onRequest: () =>
          new Response("no entry", { status: 403, headers: { "content-length": "8" } }),
      },
      "403: no entry",
    ],
    // The log has this text as well, but the client does not get it.
    [
      "http://a/hook",
      {
        target: "http://127.0.0.1:1",
        onRequest() {
          throw new TypeError("my hook");
        },
      },
      "500: TypeError: my hook, thrown at ",
    ],
    ["http://a/é", {}, "400: the server refuses it before it has a route"],
    ["HEAD http://a/else", {}, "404: a response without a body"],
    [
      "HEAD http://a/x/..%2fy",
      { target: "http://127.0.0.1:1/base" },
      "400: the request path could leave",
    ],
    [
      "http://a/old",
      {
        target: "http://127.0.0.1:1",
        onRequest: () => new Response(null, { status: 304, headers: { "content-length": "8" } }),
      },
      "304: a response without a body",
    ],
    [
      "POST http://a/else",
      {},
      "404: Not Found: no route for this host and path",
      "Expect: 100-continue",
      "Content-Length: 1",
    ],
  ])("a request for %s", async (request, config, answer, ...fields) => {
    const routes = [{ match: "/only", target: "http://127.0.0.1:1" }];
    expect(await show({ routes, ...config }, request, ...fields)).toContain(
      `not forwarded: the client gets ${answer}`,
    );
  });
});

test("--inspect resolves dot segments of a path before it chooses the route, as the server does", async () => {
  const routes = [{ match: "/b", target: `${target}/base` }];
  const text = await show({ routes }, "/a/../b/./%41");
  expect(reasonOf(text, "GET /base/b/%41 HTTP/1.1")).toBe(
    "dot segments are resolved, then the target's path or query in front",
  );
});

test("--inspect runs the hooks, and shows their changes", async () => {
  const config: ReadConfig = {
    target,
    onRequest: (draft) => {
      draft.headers.set("x-hook", "1");
      draft.headers.delete("accept");
      draft.path = "/other";
      draft.headers.set("host", "b.example");
    },
  };
  const text = await show(config, "/path", "Accept: */*");
  expect(reasonOf(text, "x-hook: 1")).toBe("onRequest: set");
  expect(reasonOf(text, "GET /other HTTP/1.1")).toBe("onRequest");
  expect(reasonOf(text, "Host: b.example")).toBe("set (onRequest)");
  expect(reasonOf(text, "Accept: */*")).toBe("onRequest: deleted");
});

test("--inspect shows a WebSocket handshake with its upgrade", async () => {
  const fields = [
    "Connection: Upgrade",
    "Upgrade: websocket",
    "Sec-WebSocket-Version: 13",
    "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==",
  ];
  const text = await show({ target }, "/socket", ...fields);
  expect(reasonOf(text, "Connection: Upgrade")).toBe(
    "about the connection to the upstream (RFC 9110 §7.6.1)",
  );
  expect(reasonOf(text, "Upgrade: websocket")).toBe("tunnelled (upgrades, RFC 9110 §7.8)");
});

test.each([
  ["GET http://shop.example/a", ["GET", "/a", "shop.example", "http"]],
  ["shop.example:80/a?b#c", ["GET", "/a?b", "shop.example:80"]],
  ["delete /a//b/../c", ["delete", "/a//b/../c", "localhost"]],
  ["HTTPS://shop.example", ["GET", "/", "shop.example", "https"]],
  ["//evil/x", ["GET", "//evil/x", "localhost"]],
])("--inspect accepts the request %s", (text, [method, path, host, scheme]) => {
  expect(readInspected(text)).toEqual({ method, scheme, path, headers: ["Host", host] });
});

test.each(["", "a b c", "ftp://a/", "http:///x", "G(T /x", "http://a b/"])(
  "--inspect refuses the request %j with an example",
  (text) => expect(() => readInspected(text)).toThrow(/write it as "GET http:\/\/shop\.example/),
);

test("--inspect-header refuses a field without a colon, and removes white space around the value", () => {
  expect(() => readInspected("/", ["no colon"])).toThrow(/^--inspect-header: write it as/);
  expect(readInspected("/", ["host: a", "X: b:c "]).headers).toEqual(["host", "a", "X", "b:c"]);
});

// ── the reasons agree with the core ──

test("each header field that the proxy drops from requests, except hop-by-hop fields, has a text for its reason", () => {
  const own = REQUEST_DROPPED.filter((name) => !HOP_BY_HOP.includes(name));
  expect(Object.keys(DROPPED_REASONS).toSorted()).toEqual(own.toSorted());
});

const NAMES = [
  "Accept",
  "X-A",
  "x_a",
  "Cookie",
  "Connection",
  "Keep-Alive",
  "TE",
  "Proxy-Authorization",
  "Forwarded",
  "X-Forwarded-For",
  "x-forwarded-proto",
  "X_Forwarded_For",
  "X-Forwarded-Prefix",
  "X-Real-IP",
  "Via",
  "Expect",
  "Accept-Encoding",
];
const VALUES = [
  "1",
  "x-a",
  "1.2.3.4",
  "127.0.0.1",
  "for=1.2.3.4",
  "for=127.0.0.1",
  "1.0 old",
  "https",
];
const SETTABLE = NAMES.filter(
  (name) => !["Connection", "Keep-Alive", "TE", "Expect"].includes(name),
);
const fieldsOf = fc
  .array(fc.tuple(fc.constantFrom(...NAMES), fc.constantFrom(...VALUES)), { maxLength: 6 })
  .map((list) => list.flat());
const optionsOf: fc.Arbitrary<ProxyOptions> = fc.record(
  {
    headers: fc.dictionary(
      fc.constantFrom(...SETTABLE),
      fc.option(fc.constantFrom("set-1", "set-2"), { nil: null }),
      { maxKeys: 2 },
    ),
    filterHeaders: fc.array(fc.constantFrom(...SETTABLE), { maxLength: 2 }),
    forwardHeaders: fc.array(fc.constantFrom(...SETTABLE), { maxLength: 2 }),
    xfwd: fc.constantFrom<boolean | "forwarded">(true, false, "forwarded"),
    trustProxy: fc.constantFrom<boolean | string[]>(true, false, ["127.0.0.1"]),
    via: fc.constantFrom<string | false>("edge", false),
  },
  { requiredKeys: [] },
);

/** Returns the header fields that the core sends for the received ones. */
function send(received: HeaderList, options: ProxyOptions): HeaderList {
  const plan = compile(options, () => new FakeTransport());
  const incoming = fakeIncoming({ headers: ["Host", "a.test", ...received], address: "127.0.0.1" });
  return toUpstreamRequest(incoming, parseTarget("http://b.test"), "/", plan, undefined).headers;
}

function valuesOf(list: HeaderList, name: string): string[] {
  return list.filter((_, i) => i % 2 === 1 && list[i - 1]?.toLowerCase() === name.toLowerCase());
}

test("the reason of each field matches what the proxy does, and without the option in the reason, the field differs", () => {
  let options = 0;
  fc.assert(
    fc.property(fieldsOf, optionsOf, (received, given) => {
      let sent: HeaderList;
      try {
        sent = send(received, given);
      } catch {
        return; // a loop in Via is refused
      }
      const plan = compile(given, () => new FakeTransport());
      const explained = explainFields(
        ["Host", "a.test", ...received],
        sent,
        (changed) => send(received, { ...given, ...changed }),
        {
          options: given,
          isTrusted: plan.trusts?.("127.0.0.1") ?? false,
          hooks: [],
          unhooked: sent,
        },
      );
      // Each field that is sent has one row, in the same order. Each field of the client that is not sent has a row as well.
      expect(explained.fields.flatMap(({ name, value }) => [name, value])).toEqual(sent);
      const gone = new Set(NAMES.filter((name) => valuesOf(sent, name).length === 0));
      const names = explained.dropped.map(({ name }) => name);
      for (const name of gone) {
        if (received.some((each, i) => i % 2 === 0 && each === name)) expect(names).toContain(name);
      }
      // A dropped field is not sent with the client's value.
      for (const { name } of explained.dropped) {
        const row = explained.fields.find((each) => each.name.toLowerCase() === name.toLowerCase());
        expect([name, row?.reason]).not.toEqual([name, "the client's"]);
      }
      const check = ({ name, reason, option }: ExplainedField): void => {
        expect(reason).not.toBe("unknown");
        if (reason === "the client's") {
          expect(valuesOf(sent, name).join(", ")).toBe(valuesOf(received, name).join(", "));
        }
        if (option === undefined || given[option as keyof ProxyOptions] === undefined) return;
        options++;
        const { [option as keyof ProxyOptions]: _, ...others } = given;
        // `xfwd` is on by default.
        const without = option === "xfwd" ? { ...others, xfwd: false } : others;
        expect([option, valuesOf(send(received, without as ProxyOptions), name)]).not.toEqual([
          option,
          valuesOf(sent, name),
        ]);
      };
      explained.fields.forEach(check);
      explained.dropped.forEach(check);
    }),
    { numRuns: 1000 },
  );
  expect(options).toBeGreaterThan(100);
});

describe.each([
  ["node", []],
  ["bun", []],
  ["deno", ["run", "-A"]],
])("on %s", (tool, args) => {
  test("the command with --inspect shows a request, and ends", async () => {
    const flags = [
      "--route",
      `/api=${target} --strip-prefix /api`,
      "--inspect",
      "http://a.test/api/x",
    ];
    const program = startProgram(tool, [
      ...args,
      "command/main.ts",
      ...flags,
      "-H",
      "keep-alive: timeout=5",
    ]);
    await using _ = program;
    await within(program.ended(), "the end");
    expect(program.code()).toBe(0);
    const text = program.output();
    expect(reasonOf(text, "GET /x HTTP/1.1")).toBe("stripPrefix");
    expect(reasonOf(text, "X-Forwarded-Host: a.test")).toBe("xfwd: about the client (RFC 7239 §5)");
    expect(reasonOf(text, "keep-alive: timeout=5")).toBe(
      "belongs to one connection (RFC 9110 §7.6.1)",
    );
  });
});
