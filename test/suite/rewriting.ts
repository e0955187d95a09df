/** URLs in Location and attributes of cookies are rewritten for the proxy's clients, and all other bytes are kept. */
import { expect } from "vitest";
import type { SetupName } from "../hosts/_setups.ts";
import type { Tools } from "./_suite.ts";
import { request, type Header } from "../helpers/wire.ts";

interface How {
  setup?: SetupName;
  status?: number;
  headers?: Header[];
}

/** Returns the values of a field as they reach the client. */
async function fieldsOf(
  t: Tools,
  name: string,
  values: string[],
  { setup = "default", status = 302, headers = [] }: How = {},
): Promise<string[]> {
  t.upstream.script = (call) =>
    call.reply(status, [["X-A", "b"], ...values.map((value): Header => [name, value])], "body");
  const answer = await t.ask(request("GET", "/api/x", headers), setup);
  expect(answer).toMatchObject({ status, text: "body" });
  expect(answer.all("x-a")).toEqual(["b"]);
  return answer.all(name);
}

async function expectEach(
  t: Tools,
  name: string,
  pairs: readonly (readonly [sent: string, received: string])[],
  how?: How,
): Promise<void> {
  for (const [sent, received] of pairs) {
    expect(await fieldsOf(t, name, [sent], how), sent).toEqual([received]);
  }
}

const same = (value: string): [string, string] => [value, value];

export const rewriting = {
  async "URLs of the target become paths of the proxy"(t: Tools): Promise<void> {
    const { url, authority } = t.upstream;
    await expectEach(t, "Location", [
      [`${url}/a%2Fb;c?d=%zz&e#f`, "/a%2Fb;c?d=%zz&e#f"],
      [url, "/"],
      [`//${authority}/a`, "/a"],
      [`http://${authority.replace("127.0.0.1", "127.1")}/a`, "/a"],
    ]);
    for (const status of [200, 201, 301, 308, 404]) {
      await expectEach(t, "location", [[`${url}/a`, "/a"]], { status });
    }
    await expectEach(t, "Content-Location", [[`${url}/a`, "/a"]], { status: 200 });
    await expectEach(
      t,
      "Refresh",
      [
        [`5; url=${url}/a`, "5; url=/a"],
        [`0;URL="${url}/a?b;c"`, '0;URL="/a?b;c"'],
        [`1, url='${url}/'`, "1, url='/'"],
        same("5"),
      ],
      { status: 200 },
    );
  },

  async "URLs of other origins and malformed URLs pass unchanged"(t: Tools): Promise<void> {
    const { url, port } = t.upstream;
    const elsewhere = [
      "https://elsewhere.test/x?y#z",
      "//elsewhere.test",
      `https://127.0.0.1:${port}/a`,
      `${url}.elsewhere.test/a`,
      `${url}@elsewhere.test/a`,
      "/\\elsewhere.test",
      "http://[/",
      "a/../b",
      "?a",
      "mailto:a@b.test",
    ];
    await expectEach(t, "Location", elsewhere.map(same));
    await expectEach(t, "Location", elsewhere.map(same), { setup: "moved" });
  },

  async "in Location, the target's base path and query are removed, and the prefix of stripPrefix is put back"(
    t: Tools,
  ): Promise<void> {
    const { url } = t.upstream;
    const pairs = [
      [`${url}/v2/a?key=k&b#c`, "/api/a?b#c"],
      ["/v2/a?key=k", "/api/a"],
      ["/v2", "/api/"],
      ["/v2/../v2/a", "/api/a"],
      same("/v20/a"),
      same(`${url}/a`),
      same("/v2/../a"),
    ] as const;
    await expectEach(t, "Location", pairs, { setup: "moved" });
    // The rewritten URL leads to the resource that the upstream named.
    expect((await t.ask(request("GET", "/api/a?b"), "moved")).status).toBe(302);
    expect(t.upstream.calls.at(-1)?.target).toBe("/v2/a?key=k&b");
  },

  async "no rewritten path can be read as an authority"(t: Tools): Promise<void> {
    const { url } = t.upstream;
    await expectEach(t, "Location", [
      [`${url}//evil.test/a`, "/.//evil.test/a"],
      [`${url}/\\evil.test/a`, "/.//evil.test/a"],
    ]);
    await expectEach(t, "Location", [[`${url}/base//evil.test/a`, "/.//evil.test/a"]], {
      setup: "base",
    });
    await expectEach(t, "Location", [[`${url}/old//evil.test/a`, "/.//evil.test/a"]], {
      setup: "mapped",
    });
  },

  async "a client's Host never appears in a rewritten URL"(t: Tools): Promise<void> {
    const { url } = t.upstream;
    const headers: Header[] = [["Host", "evil.test"]];
    for (const setup of ["default", "hosted", "moved"] as const) {
      const how = { setup, headers };
      const path = setup === "moved" ? "/v2/a" : "/a";
      const [location] = await fieldsOf(t, "Location", [`${url}${path}`], how);
      expect(location).toBe(setup === "moved" ? "/api/a" : "/a");
    }
  },

  async "with changeOrigin: false, URLs with the client's Host count as URLs of the target"(
    t: Tools,
  ): Promise<void> {
    const headers: Header[] = [["Host", "shop.test:8080"]];
    const pairs = [
      ["http://shop.test:8080/a", "/a"],
      ["//Shop.test:8080/a", "/a"],
      same("https://shop.test:8080/a"),
      same("http://shop.test/a"),
    ] as const;
    await expectEach(t, "Location", pairs, { setup: "hosted", headers });
    await expectEach(t, "Location", [same("http://shop.test:8080/a")], { headers });
  },

  async "a map of locationRewrite replaces URL prefixes, the longest first"(
    t: Tools,
  ): Promise<void> {
    const { url, authority } = t.upstream;
    const pairs = [
      [`${url}/a?b#c`, "https://shop.test/a?b#c"],
      [`//${authority}/a`, "https://shop.test/a"],
      [`${url}/old/a`, "/a"],
      ["/old/a", "/new/a"],
      [url, "/"],
      same("/older"),
    ] as const;
    await expectEach(t, "Location", pairs, { setup: "mapped" });
    await expectEach(t, "Refresh", [[`0; url='${url}/'`, "0; url='https://shop.test/'"]], {
      setup: "mapped",
    });
  },

  async "locationRewrite: false leaves URLs unchanged"(t: Tools): Promise<void> {
    const { url } = t.upstream;
    for (const name of ["Location", "Content-Location"]) {
      await expectEach(t, name, [same(`${url}/v2/a`), same("/v2/a")], { setup: "unmoved" });
    }
    await expectEach(t, "Refresh", [same(`0; url=${url}/v2/a`)], { setup: "unmoved" });
  },

  async "UTF-8 in rewritten URLs keeps its bytes"(t: Tools): Promise<void> {
    const utf8 = Buffer.from("\u00e9\u20ac").toString("latin1");
    const location = [[`${t.upstream.url}/${utf8}?${utf8}`, `/${utf8}?${utf8}`]] as const;
    await expectEach(t, "Location", location);
    const cookie = [[`a=${utf8}; Domain=up.test`, `a=${utf8}; Domain=shop.test`]] as const;
    await expectEach(t, "Set-Cookie", cookie, { setup: "moved" });
  },

  async "bytes above 0x7f that are not UTF-8 are kept in rewritten URLs"(t: Tools): Promise<void> {
    const latin1 = "\u00e9\u00a0\u00ff!";
    await expectEach(t, "Location", [
      [`${t.upstream.url}/${latin1}?${latin1}`, `/${latin1}?${latin1}`],
    ]);
    const cookie = [[`a=${latin1}; Domain=up.test`, `a=${latin1}; Domain=shop.test`]] as const;
    await expectEach(t, "Set-Cookie", cookie, { setup: "moved" });
  },

  async "cookie options rewrite Domain and Path of each cookie, and nothing else"(
    t: Tools,
  ): Promise<void> {
    const cookies = [
      ["a=b; Path=/v2; Domain=.UP.test; Secure", "a=b; Path=/api; Domain=shop.test; Secure"],
      ["c=d;domain=internal.test;path=/v2/x", "c=d;path=/v2/x"],
      ["e=f; Expires=Thu, 01 Jan 1970 00:00:00 GMT", "e=f; Expires=Thu, 01 Jan 1970 00:00:00 GMT"],
      ['g="h;domain=up.test"; PATH = /v2', 'g="h;domain=up.test"; PATH = /api'],
      ["Domain=up.test", "Domain=up.test"],
    ] as const;
    const sent = cookies.map(([each]) => each);
    const received = await fieldsOf(t, "Set-Cookie", sent, { setup: "moved", status: 200 });
    expect(received).toEqual(cookies.map(([, each]) => each));
    const all = await fieldsOf(t, "Set-Cookie", ["a=b; Domain=x; Path=/y", "c=d"], {
      setup: "mapped",
    });
    expect(all).toEqual(["a=b; Path=/", "c=d"]);
  },

  async "without cookie options, cookies pass unchanged"(t: Tools): Promise<void> {
    const cookies = ["a=b; Domain=up.test; Path=/v2", "c=d;  path=/"];
    expect(await fieldsOf(t, "Set-Cookie", cookies)).toEqual(cookies);
  },
};
