import fc from "fast-check";
import { expect, test } from "vitest";
import { compileLocationRewrite } from "../../../src/response/location.ts";
import { compile } from "../../../src/plan.ts";
import { joinTarget, parseTarget } from "../../../src/target/target.ts";
import { FakeTransport, fakeRequest } from "../../helpers/fakes.ts";

const CLIENT = "https://shop.test";

/** Parses a reference as a client does: bytes above 0x7f are percent-encoded first. */
function read(reference: string, base: string): URL | undefined {
  const bytes = Array.from(reference, (each) =>
    each > "\u007f" ? `%${each.charCodeAt(0).toString(16)}` : each,
  ).join("");
  return URL.canParse(bytes, base) ? new URL(bytes, base) : undefined;
}

const some = (pieces: string, maxLength: number): fc.Arbitrary<string> =>
  fc.array(fc.constantFrom(...pieces.split(" ")), { maxLength }).map((each) => each.join(""));

const scheme = fc.constantFrom("", "http:", "https:", "HTTP:", "ftp:", "mailto:");
const slashes = fc.constantFrom("", "/", "//", "///", "\\", "/\\", "\\\\", "/\t/");
const authority = fc.constantFrom(
  ..." up.test UP.test up.test:80 up.test:4000 up.test:443 shop.test shop.test:8443 [".split(" "),
  ..."evil.test up.test.evil.test up.test@evil.test evil@up.test".split(" "),
);
/** Generates the beginning of a reference. About half of them lead to a target. */
const start = fc.oneof(
  fc.constantFrom("", "http://up.test", "http://up.test:4000", "https://up.test", "//up.test"),
  fc.constantFrom("http://shop.test", "http://user:secret@up.test:80", "\\\\up.test"),
  fc.tuple(scheme, slashes, authority).map((parts) => parts.join("")),
);
const path = fc
  .tuple(
    fc.constantFrom("", "/", "/v2", "/v2/x", "/a/v2"),
    some("/ / // \\ . .. %2e a v2 V2 /v2 x ; % %2F %5c \u00e9 \u00ff ~ @ :", 8),
  )
  .map((parts) => parts.join(""));
const rest = some("? # k=v & a // .. %zz \u00e9 \\ /v2", 5).filter((text) => /^[?#]|^$/.test(text));

const reference = fc.tuple(start, path, rest).map((parts) => parts.join(""));

const targets =
  "http://up.test http://up.test:4000 https://up.test http://up.test/v2 http://up.test/v2/x?k=v http://up.test?k=v https://up.test/a/v2";
const setup = fc.record({
  target: fc.constantFrom(...targets.split(" ")),
  prefix: fc.constantFrom("", "/api", "/v2", "/a/b"),
  host: fc.constantFrom(undefined, "shop.test", "shop.test:8443", "up.test:80", "evil.test"),
  from: fc.constantFrom("/", "/api", "/api/x/y?z", "/v2/x/"),
});

/** Returns the URL that the proxy would request from the upstream if a client requested `url`. */
async function forwarded(url: URL, target: string, prefix: string): Promise<URL> {
  const plan = compile({ stripPrefix: prefix || "/" }, () => new FakeTransport());
  const asked = url.pathname + url.search;
  const upstream = parseTarget(target);
  const stripped = (await plan.rewrite?.(asked, () => new Request(url))) ?? asked;
  return new URL(upstream.origin + joinTarget(upstream, stripped) + url.hash);
}

/** Whether a URL leads to the target, under the target's own host or `host`, and is below its base path. */
function isInside(url: URL, target: string, host: string | undefined): boolean {
  const { origin, protocol, pathname } = new URL(target);
  const names = [origin, host && new URL(`${protocol}//${host}`).origin];
  return (
    names.includes(url.origin) && `${url.pathname}/`.startsWith(`${pathname.replace(/\/$/, "")}/`)
  );
}

/**
 * Returns path, query and fragment of a URL of the target as the proxy would request it: with the target's query, and a slash
 * after the base path.
 */
function throughTarget(meant: URL, target: string): string {
  const { pathname, search } = new URL(target);
  const url = new URL(meant);
  url.username = url.password = "";
  if (url.pathname === pathname) url.pathname = `${pathname.replace(/\/$/, "")}/`;
  const own = search.slice(1);
  const asked = url.search.slice(1);
  // If the URL has no query beyond that of the target, a `&` at its end makes no difference.
  if (own !== "" && (asked === "" || asked === `${own}&`)) url.search = own;
  else if (own !== "" && !`${asked}&`.startsWith(`${own}&`)) url.search = `${own}&${asked}`;
  return url.pathname + url.search + url.hash;
}

test("fuzzed: a URL of the target keeps its meaning through the proxy, and URLs of other hosts are unchanged", async () => {
  const counts = { inside: 0, elsewhere: 0 };
  await fc.assert(
    fc.asyncProperty(reference, setup, async (value, { target, prefix, host, from }) => {
      const upstream = parseTarget(target);
      const hop = fakeRequest({ upstream, host });
      const rewritten = compileLocationRewrite(true, prefix)?.(value, hop) ?? "";

      const asked = new URL(CLIENT + from);
      const sent = await forwarded(asked, target, prefix);
      const meant = read(value, sent.href);
      const absolute = /^(?:https?:)?[/\\]/i.test(value) && !/^https?:[/\\](?![/\\])/i.test(value);
      const given = read(rewritten, asked.href);
      if (!absolute || value.includes("\t") || meant === undefined) {
        expect(rewritten).toBe(value);
      } else if (isInside(meant, target, host)) {
        counts.inside++;
        expect(given?.origin).toBe(CLIENT);
        const arrived = await forwarded(given as URL, target, prefix).catch(() => undefined);
        // The proxy refuses a path that could leave the base path after some decoding.
        if (arrived === undefined) {
          expect(meant.pathname).toMatch(/(?:\.|%2e){2}/i);
          return;
        }
        expect(arrived.pathname + arrived.search + arrived.hash).toBe(throughTarget(meant, target));
      } else if (meant.host === (host && new URL(`${meant.protocol}//${host}`).host)) {
        // A redirect to another scheme keeps the host that the upstream wrote.
        if (rewritten !== value) expect(given?.origin).toBe(meant.origin);
      } else {
        counts.elsewhere++;
        expect(rewritten).toBe(value);
      }
    }),
    { numRuns: 10_000 },
  );
  expect(counts.inside).toBeGreaterThan(1_000);
  expect(counts.elsewhere).toBeGreaterThan(1_000);
});
