import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { rfc } from "../../conformance/rfc.ts";
import { ProxyError } from "../../../src/error.ts";
import {
  assertReachable,
  guardEscape,
  joinTarget,
  parseTarget,
  type TargetAddress,
} from "../../../src/target/target.ts";
import { proxyError } from "../../helpers/fakes.ts";

const refused = proxyError("http_request_error", 400);

describe("parseTarget", () => {
  test("parses a URL", () => {
    expect(parseTarget("https://api.example:8443/v1/?key=k&x")).toEqual({
      origin: "https://api.example:8443",
      host: "api.example:8443",
      hostname: "api.example",
      secure: true,
      basePath: "/v1",
      query: "key=k&x",
      socketPath: undefined,
      tls: undefined,
      app: undefined,
    });
  });

  test.each<[TargetAddress, object]>([
    ["http://127.0.0.1:4000", { origin: "http://127.0.0.1:4000", basePath: "", query: "" }],
    [new URL("http://a.test/b"), { origin: "http://a.test", basePath: "/b", secure: false }],
    ["http://a.test:80/", { host: "a.test", basePath: "" }],
    ["http://[::1]:4000", { hostname: "::1", host: "[::1]:4000" }],
    ["unix:/run/app.sock", { origin: "http://localhost", socketPath: "/run/app.sock" }],
    ["unix:\\\\.\\pipe\\app", { origin: "http://localhost", socketPath: "\\\\.\\pipe\\app" }],
    [
      { url: "http://a.test/b", socketPath: "/s" },
      { socketPath: "/s", basePath: "/b" },
    ],
    [{ url: "https://a.test", tls: { servername: "b" } }, { tls: { servername: "b" } }],
    [{ url: "https://a.test", http2: true }, { http2: true }],
    [{ url: "https://a.test" }, { http2: undefined }],
  ])("reads %j", (target, parts) => {
    expect(parseTarget(target)).toMatchObject(parts);
  });

  test("caches parsed strings, up to a limit", () => {
    const first = parseTarget("http://kept.test");
    expect(parseTarget("http://kept.test")).toBe(first);
    for (let i = 0; i < 1_000; i++) parseTarget(`http://kept-${i}.test`);
    expect(parseTarget("http://kept.test")).not.toBe(first);
    expect(parseTarget("http://kept.test")).toEqual(first);
  });

  const tls = { ca: ["one", "two"], checkServerIdentity: () => undefined };

  test.each<[string, () => TargetAddress]>([
    ["a URL", () => new URL("http://a.test/b")],
    ["options", () => ({ url: "https://a.test", tls: { ...tls, ca: [...tls.ca] } })],
    ["options with a URL", () => ({ url: new URL("https://b.test"), http2: true })],
  ])("parses %s once, even if each call passes a new object", (_, make) => {
    expect(parseTarget(make())).toBe(parseTarget(make()));
  });

  test("parses an object again once it has changed", () => {
    const url = new URL("http://a.test");
    const target = { url, tls: { ca: ["one"] } };
    const first = parseTarget(target);
    target.tls.ca[0] = "two";
    const second = parseTarget(target);
    url.port = "81";
    const third = parseTarget(target);
    const all = [first, second, third].map(({ origin, tls: at }) => [origin, at?.ca]);
    expect(all).toEqual([
      ["http://a.test", ["one"]],
      ["http://a.test", ["two"]],
      ["http://a.test:81", ["two"]],
    ]);
  });

  test.each<[string, object]>([
    ["another function", { tls: { ...tls, checkServerIdentity: () => undefined } }],
    ["an option more", { tls: { ...tls, servername: "b" } }],
    ["an option less", { tls: { ca: tls.ca } }],
    ["another name of an option", { tls: { ca: tls.ca, checkServerIdentitY: undefined } }],
    ["an address", { tls, address: "127.0.0.1" }],
    ["HTTP/2", { tls, http2: true }],
  ])("distinguishes targets by %s", (_, options) => {
    const first = parseTarget({ url: "https://d.test", tls });
    expect(parseTarget({ url: "https://d.test", ...options })).not.toBe(first);
    expect(() => parseTarget({ url: "https://d.test", tls, adress: "::1" } as never)).toThrow(
      "adress",
    );
  });

  test.each<[unknown, string]>([
    ["127.0.0.1:4000", 'write "http://127.0.0.1:4000"$'],
    ["localhost:4000", 'write "http://localhost:4000"$'],
    ["localhost:4000/base?a", 'write "http://localhost:4000/base\\?a"$'],
    ["[::1]:4000", 'write "http://\\[::1\\]:4000"$'],
    ["api.example", 'write "http://api.example"$'],
    ["4000", 'write "http://localhost:4000"$'],
    [":4000", 'write "http://localhost:4000"$'],
    [4000, 'target 4000: write "http://localhost:4000"$'],
    [{ url: "localhost:4000" }, '"localhost:4000": write "http://localhost:4000"$'],
    [99999, "ports end at 65535"],
    ["localhost:99999", "ports end at 65535"],
    ["http://localhost:99999", "ports end at 65535"],
    ["/relative", 'use a URL such as .*, or "unix:/path"$'],
    ["//a.test:80", "use a URL such as"],
    ["http:/a.test:80", "use a URL such as"],
    ["http//a.test", "use a URL such as"],
    ["me:s3cret@a.test:80", "use a URL such as"],
    ["s3://a.test", "use a URL such as"],
    ["http://unix:/run/app.sock:/base", 'or "unix:/path"'],
    ["ftp://a.test", "use a URL such as"],
    ["ws://127.0.0.1:5000/a", 'write "http://127.0.0.1:5000/a"$'],
    ["wss://a.test:80", 'use a URL such as .*, also for WebSockets, or "unix:/path"$'],
    ["ws://me:s3cret@a.test:80", "use a URL such as"],
    ["http://a.test/#top", "leave out the fragment"],
    ["unix:relative.sock", 'use "unix:/path/to/socket"'],
    ["unix:\\app", 'use "unix:/path/to/socket"'],
    [undefined, "is its variable set\\? did a function return it\\?$"],
    [{}, "write the URL, { url, socketPath\\?, tls\\?, http2\\? }"],
    [{ host: "a.test", port: 80 }, "write the URL, { url, "],
    [{ target: "http://a.test" }, "pass the URL; options are the third argument$"],
    [{ url: "http://a.test", http2: "yes" }, "http2: use true or false"],
    [{ url: "http://a.test", tsl: {} }, "tsl: there is no such option; did you mean `tls`"],
    [Object.freeze({ url: "http://a.test", socket_path: "/a" }), "did you mean `socketPath`"],
    [
      { url: "http://a.test", host: "b" },
      "host: there is no such option; there are url, socketPath",
    ],
    [{ url: "http://a.test", socketPath: 1 }, "socketPath: use a path such as"],
    [{ url: "https://a.test", tls: [] }, "tls: use an object such as"],
    [["http://a.test", "http://b.test"], "write `balance\\(\\[…\\]\\)`, from fetchway/upstreams"],
    [null, "use a URL such as"],
    [true, "use a URL such as"],
  ])("refuses %j and says how to write it", (target, fix) => {
    const parse = (): unknown => parseTarget(target as TargetAddress);
    expect(parse).toThrow(TypeError);
    expect(parse).toThrow(new RegExp(`^fetchway: bad (?!.*s3cret).*${fix}`));
  });

  test("refuses credentials without repeating them", () => {
    rfc("9110-4.2.4-userinfo-sent");
    const target = "http://user:s3cret@a.test";
    expect(() => parseTarget(target)).toThrow(TypeError);
    expect(() => parseTarget(target)).toThrow(/^(?!.*s3cret).*authorization/);
  });
});

describe("assertReachable", () => {
  const client = (can: boolean) => ({
    name: "fake",
    capabilities: { unixSocket: can, tls: can },
  });

  test.each<[TargetAddress, string]>([
    ["unix:/run/app.sock", "the fake client cannot reach unix sockets; use a URL"],
    [{ url: "https://a.test", tls: {} }, "the fake client has no TLS options; leave out `tls`"],
  ])("the target %j is refused by a transport without the capability for it", (target, fix) => {
    const upstream = parseTarget(target);
    expect(() => assertReachable(upstream, client(true))).not.toThrow();
    expect(() => assertReachable(upstream, client(false))).toThrow(TypeError);
    expect(() => assertReachable(upstream, client(false))).toThrow(`fetchway: ${fix}`);
  });

  test("a plain URL needs no capability", () => {
    expect(() => assertReachable(parseTarget("https://a.test"), client(false))).not.toThrow();
  });
});

describe("joinTarget", () => {
  test.each([
    ["http://u.test", "/a//b%2Fc;d?x=+&y=%20&", "/a//b%2Fc;d?x=+&y=%20&"],
    ["http://u.test", "//evil.test/x", "//evil.test/x"],
    ["http://u.test", "/\\evil.test", "/\\evil.test"],
    ["http://u.test", "/a?", "/a?"],
    ["http://u.test", "/a/../b", "/a/../b"],
    ["http://u.test/v1", "/", "/v1/"],
    ["http://u.test/v1/", "/a?b", "/v1/a?b"],
    ["http://u.test/v1", "/a?../..", "/v1/a?../.."],
    ["http://u.test?k=1", "/a", "/a?k=1"],
    ["http://u.test?k=1", "/a?b=2", "/a?k=1&b=2"],
    ["http://u.test/v1?k=1", "/a?", "/v1/a?k=1"],
    ["http://u.test/v1", "/...", "/v1/..."],
    ["http://u.test/v1", "/a..b/..c", "/v1/a..b/..c"],
    ["http://u.test/v1", "/\u00e9\u00ff", "/v1/\u00e9\u00ff"],
  ])("joins the target %s and the path %s to %s", (target, path, joined) => {
    expect(joinTarget(parseTarget(target), path)).toBe(joined);
  });

  test.each(
    "|*|a|@evil.test/|http://evil.test/|/a b|/a\tb|/a\r\nb|/a#b|/\0|/\u007f|/\u0100".split("|"),
  )("refuses the path %j", (path) => {
    for (const target of ["http://u.test", "http://u.test/v1?k=1"]) {
      expect(() => joinTarget(parseTarget(target), path)).toThrow(refused);
    }
  });

  const escapes =
    "/.. /../ /..#a /..%3bx /a/../../b /%2e%2e/a /.%2E/a /..%2fa /..%5ca /..\\a /%252e%252e/a /..;x/a /a/..; /%2f..%2f";
  const nested =
    "/%25%32%65%25%32%65/x /%%32%65%%32%65/x /%%32e%%32e/x /%2%65%2%65/x /..%25%32%66x /..%%35%63x /..%00 /%2e%2e%00 /..%2500 /.%0a./x";
  test.each([...escapes.split(" "), ...nested.split(" ")])(
    "refuses the path %j below a base path",
    (path) => {
      expect(() => joinTarget(parseTarget("http://u.test/v1"), path)).toThrow(refused);
    },
  );

  const octets = "/%ff /%c3 /%E4%BD/x /%c3%28 /100% /%zz /%2 /a%00b /... /%25%32%35";
  test.each(octets.split(" "))("passes on the path %j unchanged below a base path", (path) => {
    expect(joinTarget(parseTarget("http://u.test/v1"), path)).toBe(`/v1${path}`);
  });

  test("refuses a path that still changes after eight decodings", () => {
    const upstream = parseTarget("http://u.test/v1");
    expect(joinTarget(upstream, `/${layered("a", 8)}`)).toBe(`/v1/${layered("a", 8)}`);
    expect(() => joinTarget(upstream, `/${layered("a", 9)}`)).toThrow(refused);
  });
});

function decode(path: string, rounds: number): string {
  let reading = path;
  for (let i = 0; i < rounds; i++) {
    reading = reading.replaceAll(/%([0-9a-f]{2})/gi, (_, hex: string) =>
      String.fromCharCode(parseInt(hex, 16)),
    );
  }
  return reading;
}

/** Splits a path as a server does that treats `\` as `/`, and removes parameters and queries from segments. */
function segmentsOf(path: string): string[] {
  // oxlint-disable-next-line no-control-regex
  return path.split(/[/\\]/).map((part) => part.split(/[;?#\u0000]/, 1)[0] as string);
}

function resolve(segments: string[]): string[] {
  const at: string[] = [];
  for (const segment of segments) {
    if (segment === "..") at.pop();
    else if (segment !== "." && segment !== "") at.push(segment);
  }
  return at;
}

const ROUNDS = Array.from({ length: 9 }, (_, rounds) => rounds);

function some(pieces: string, maxLength: number): fc.Arbitrary<string> {
  const piece = fc.constantFrom(...pieces.split(" "));
  return fc.array(piece, { maxLength }).map((each) => each.join(""));
}

const base = some("/v1 /api /a.b", 3).filter((path) => path !== "");
const pathname = some(
  "/ // \\ . .. ... a B ; + ~ % %2e %2E %2f %5C %25 %252e %25252F %3b %3F %23 %32 %65 %45 %66 %35 %63 %33 %62 %00 2 e 5 %c3%a9 \u00e9 & = # @ :",
  12,
).map((path) => `/${path}`);
const query = some("? a = & .. / %2e +", 6);

/** Returns the joined path, or undefined if the path is refused. */
function attempt(target: string, path: string): string | undefined {
  try {
    return joinTarget(parseTarget(target), path);
  } catch (error) {
    if (error instanceof ProxyError && error.status === 400) return undefined;
    throw error;
  }
}

/** Percent-encodes a character `layers` times. */
function layered(mark: string, layers: number): string {
  if (layers === 0) return mark;
  return `%${"25".repeat(layers - 1)}${mark.charCodeAt(0).toString(16).padStart(2, "0")}`;
}

describe("fuzzed paths", () => {
  test("no path leaves the base path after repeated decoding, and all bytes are kept", () => {
    let accepted = 0;
    fc.assert(
      fc.property(base, pathname, query, fc.boolean(), (basePath, path, search, asks) => {
        const asked = asks ? `${path}?${search}` : path;
        const joined = attempt(`http://u.test${basePath}`, asked);
        if (joined === undefined) return;
        accepted++;
        expect(joined).toBe(basePath + asked);
        const below = resolve(segmentsOf(basePath));
        for (const rounds of ROUNDS) {
          const seen = resolve(segmentsOf(decode(basePath + path, rounds)));
          expect(seen.slice(0, below.length)).toEqual(below);
        }
        const read = new URL(`http://u.test${joined}`);
        expect(read.host).toBe("u.test");
        expect(`${read.pathname}/`.startsWith(`${basePath}/`)).toBe(true);
      }),
      { numRuns: 3_000 },
    );
    expect(accepted).toBeGreaterThan(500);
  });

  test("every encoding of .. up to 8 layers deep is refused", () => {
    const layers = fc.nat(8);
    const dots = fc.tuple(layers, layers).map(([a, b]) => layered(".", a) + layered(".", b));
    const slash = fc.tuple(fc.constantFrom("/", "\\"), layers).map(([mark, n]) => layered(mark, n));
    const cut = fc
      .tuple(fc.constantFrom(";", "?", "#", "\0"), layers)
      .map(([mark, n]) => layered(mark, n));
    const after = fc.oneof(
      fc.constant(""),
      cut.map((mark) => `${mark}x`),
      slash.map((mark) => `${mark}etc`),
    );
    fc.assert(
      fc.property(some("/a /b", 2), slash, dots, after, (lead, before, parent, rest) => {
        expect(() => guardEscape(lead + before + parent + rest)).toThrow(refused);
      }),
      { numRuns: 3_000 },
    );
  });

  test("a path that contains no .. in any reading is accepted", () => {
    fc.assert(
      fc.property(
        some("/ \\ a b.c . ... .. % %2F %252f %5c %2e %3f %253B %32 %65 %00 2 e %c3 ;x", 12),
        (rest) => {
          const path = `/${rest}`;
          fc.pre(ROUNDS.every((rounds) => !segmentsOf(decode(path, rounds)).includes("..")));
          expect(() => guardEscape(path)).not.toThrow();
        },
      ),
      { numRuns: 3_000 },
    );
  });
});
