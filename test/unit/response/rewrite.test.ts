import { describe, expect, test } from "vitest";
import type { ProxyOptions } from "../../../src/options/proxyoptions.ts";
import { compileResponseRewrite } from "../../../src/response/rewrite.ts";
import { fakeRequest, FakeTransport, fakeResponse, run, TARGET } from "../../helpers/fakes.ts";

function rewrite(headers: string[], options: ProxyOptions = {}): string[] {
  compileResponseRewrite({ locationRewrite: true, ...options }, "")?.(headers, fakeRequest());
  return headers;
}

test("without an option that rewrites fields there is no rewriting function", () => {
  expect(compileResponseRewrite({ locationRewrite: false }, "/api")).toBeUndefined();
});

describe("fields", () => {
  const up = `${TARGET}/a`;

  test.each(["Location", "location", "LOCATION", "content-location", "Content-Location"])(
    "every %s field is rewritten",
    (name) => {
      const other = "http://other.test/a";
      expect(rewrite([name, up, "A", "b", name, other, name, up])).toEqual([
        name,
        "/a",
        "A",
        "b",
        name,
        other,
        name,
        "/a",
      ]);
    },
  );

  test.each(["X-Location", "locatiom", "Content-Encoding", "content_location", "expires", "link"])(
    "%s is not rewritten",
    (name) => {
      expect(rewrite([name, up])).toEqual([name, up]);
    },
  );

  test("without an option, Set-Cookie is not rewritten", () => {
    const headers = ["Set-Cookie", "a=b; Domain=up.test"];
    expect(rewrite([...headers])).toEqual(headers);
  });

  test("several Set-Cookie fields stay separate", () => {
    const headers = [
      "Set-Cookie",
      "a=b; Domain=x",
      "A",
      "b",
      "set-cookie",
      "c=d; domain=y; Path=/",
    ];
    const options: ProxyOptions = { cookieDomainRewrite: "" };
    const rewritten = ["Set-Cookie", "a=b", "A", "b", "set-cookie", "c=d; Path=/"];
    expect(rewrite([...headers], options)).toEqual(rewritten);
    expect(rewrite([...headers, "Location", up], { ...options, locationRewrite: false })).toEqual([
      ...rewritten,
      "Location",
      up,
    ]);
  });
});

describe("Refresh", () => {
  const up = `${TARGET}/a?b=c;d`;

  test.each([
    [`5; url=${up}`, "5; url=/a?b=c;d"],
    [`5;URL=${up}`, "5;URL=/a?b=c;d"],
    [`0.5 ; Url = ${up}`, "0.5 ; Url = /a?b=c;d"],
    [`5,url="${up}"`, '5,url="/a?b=c;d"'],
    [`5; url='${up}' `, "5; url='/a?b=c;d' "],
    [`5; url='${up}"'more'`, "5; url='/a?b=c;d\"'more'"],
    [`5; url="${up}`, '5; url="/a?b=c;d'],
    [`5;${up}`, "5;/a?b=c;d"],
    [`5 ${up}`, "5 /a?b=c;d"],
    [`5; url="${TARGET}"`, '5; url="/"'],
    [`5 url=${up}`, "5 url=/a?b=c;d"],
  ])("with the value %j becomes %j", (value, rewritten) => {
    expect(rewrite(["Refresh", value])).toEqual(["Refresh", rewritten]);
  });

  test.each(["5", "", "5;", "5; url=", '5; url=""', "5; url=/a", `url=${up}`, `x;url=${up}`])(
    "with the value %j is unchanged",
    (value) => {
      expect(rewrite(["Refresh", value])).toEqual(["Refresh", value]);
    },
  );
});

describe("rewriting in a proxy", () => {
  const from = (headers: string[], status = 302): FakeTransport =>
    new FakeTransport(() => fakeResponse({ status, headers }));

  test("changes Location unless locationRewrite is false, and leaves cookies unchanged", async () => {
    const transport = from(["Location", `${TARGET}/a`, "Set-Cookie", "a=b; Domain=up.test"]);
    const on = await run({}, { transport });
    expect(on.headers.get("location")).toBe("/a");
    expect(on.headers.get("set-cookie")).toBe("a=b; Domain=up.test");
    const off = await run({}, { transport, options: { locationRewrite: false } });
    expect(off.headers.get("location")).toBe(`${TARGET}/a`);
  });

  test.each([200, 201, 303, 404])(
    "changes Location of a response with status %d",
    async (status) => {
      const transport = from(["Location", `${TARGET}/a`], status);
      expect((await run({}, { transport })).headers.get("location")).toBe("/a");
    },
  );

  test("removes the target's base path from Location, and adds the stripped prefix again", async () => {
    const setup = {
      transport: from(["Location", `${TARGET}/v2/a?key=k&b`]),
      target: `${TARGET}/v2?key=k`,
      options: { stripPrefix: "/api/" },
    };
    const { headers } = await run({ path: "/api/x" }, setup);
    expect(headers.get("location")).toBe("/api/a?b");
  });

  test("treats the client's Host as a name of the target if it is forwarded, and removes it from Location", async () => {
    const headers = ["Location", "http://evil.test/a"];
    const incoming = { headers: ["Host", "evil.test"] };
    const kept = await run(incoming, {
      transport: from(headers),
      options: { changeOrigin: false },
    });
    expect(kept.headers.get("location")).toBe("/a");
    const changed = await run(incoming, { transport: from(headers) });
    expect(changed.headers.get("location")).toBe("http://evil.test/a");
    const own = await run(incoming, { transport: from(["Location", `${TARGET}/a`]) });
    expect(own.headers.get("location")).toBe("/a");
  });

  test("treats a Host set by onRequest as a name of the target", async () => {
    const { headers } = await run(
      {},
      {
        transport: from(["Location", "http://set.test/a"]),
        options: { onRequest: (draft) => draft.headers.set("host", "set.test") },
      },
    );
    expect(headers.get("location")).toBe("/a");
  });

  test("runs before onResponse, which can change the result", async () => {
    const seen: (string | null)[] = [];
    const { headers } = await run(
      {},
      {
        transport: from(["Location", `${TARGET}/a`]),
        options: {
          onResponse(response) {
            seen.push(response.headers.get("location"));
            response.headers.set("location", `${TARGET}/b`);
          },
        },
      },
    );
    expect(seen).toEqual(["/a"]);
    expect(headers.get("location")).toBe(`${TARGET}/b`);
  });

  test("resolves relative URLs against the last followed redirect", async () => {
    const transport = new FakeTransport(({ path }) =>
      path === "/a"
        ? fakeResponse({ status: 302, headers: ["Location", "/b/c"] })
        : fakeResponse({ headers: ["Content-Location", "d"] }),
    );
    const { headers } = await run(
      { path: "/a" },
      { transport, options: { followRedirects: true } },
    );
    expect(headers.get("content-location")).toBe("/b/d");
  });

  test("uses the target chosen for the request", async () => {
    const target = (): string => "http://chosen.test/v2";
    const transport = from(["Location", "http://chosen.test/v2/a"]);
    expect((await run({}, { transport, target })).headers.get("location")).toBe("/a");
  });
});

describe("dot segments in rewritten paths", () => {
  const paths = ["/../x", "/..", "/a/..%2fx", "/..%5cx", "/%252e%252e/x", "/a/..;/x", "/\\..\\x"];
  const rewrites: [string, ProxyOptions][] = [
    ["stripPrefix", { stripPrefix: "/api" }],
    ["a map in pathRewrite", { pathRewrite: { "^/api": "" } }],
    ["a function in pathRewrite", { pathRewrite: (path) => path.slice("/api".length) }],
    ["an asynchronous function in pathRewrite", { pathRewrite: async (path) => path.slice(4) }],
    ["stripPrefix together with pathRewrite", { stripPrefix: "/api", pathRewrite: (path) => path }],
  ];

  test.each(rewrites)(
    "with %s, a path with dot segments gets 400, whether or not the target has a base path",
    async (_, options) => {
      for (const target of [TARGET, `${TARGET}/v2`]) {
        for (const path of paths) {
          const transport = new FakeTransport();
          const response = await run({ path: `/api${path}` }, { transport, target, options });
          expect(response.status, path).toBe(400);
          expect(transport.hops, path).toEqual([]);
        }
        const transport = new FakeTransport();
        const fine = await run({ path: "/api/a..b?../.." }, { transport, target, options });
        expect(fine.status).toBe(200);
        expect(transport.hops[0]?.path).toBe(`${target.slice(TARGET.length)}/a..b?../..`);
      }
    },
  );

  test("a path with dot segments gets 400 if a function in pathRewrite returns it", async () => {
    for (const made of ["/..", "/x/../../y", "/%2e%2e/", "/..%3fx", "/..%23"]) {
      const transport = new FakeTransport();
      const options: ProxyOptions = { pathRewrite: () => made };
      expect((await run({ path: "/" }, { transport, options })).status, made).toBe(400);
      expect(transport.hops).toEqual([]);
    }
  });
});
