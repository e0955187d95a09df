/** End-to-end fields arrive as they were sent: order, duplicates, case and bytes are kept. Only the proxy's own are added. */
import { expect } from "vitest";
import { rfc } from "../conformance/rfc.ts";
import type { Tools } from "./_suite.ts";
import { pause } from "../helpers/wait.ts";
import { request, type Header } from "../helpers/wire.ts";

const repeated: Header[] = [
  ["X-Multi", "1"],
  ["X-Between", "-"],
  ["X-Multi", "2"],
  ["X-Multi", "3"],
];

/** Fields whose names are properties that every plain object inherits. */
const inherited: Header[] = [
  ["constructor", "c"],
  ["toString", "t"],
  ["hasOwnProperty", "h"],
  ["valueOf", "v"],
];

function named(headers: Header[] | undefined, pattern: RegExp): Header[] {
  return (headers ?? []).filter(([name]) => pattern.test(name));
}

/** Sorts fields for a comparison without their order, because some servers sort them by name. */
function sorted(headers: Header[]): string[] {
  return lower(headers)
    .map((header) => header.join(": "))
    .toSorted((a, b) => (a < b ? -1 : 1));
}

function lower(headers: Header[]): Header[] {
  return headers.map(([name, value]) => [name.toLowerCase(), value]);
}

export const headers = {
  async "several Set-Cookie fields stay separate, in order"(t: Tools): Promise<void> {
    rfc("9110-5.3-set-cookie", "9110-5.3-repeated");
    const cookies = [
      "a=1; Path=/",
      "b=2; Expires=Wed, 21 Oct 2026 07:28:00 GMT",
      "a=3; HttpOnly",
      "c=",
    ];
    t.upstream.script = (call) =>
      call.reply(
        200,
        cookies.map((value): Header => ["Set-Cookie", value]),
        "body",
      );
    expect((await t.ask(request("GET", "/"))).all("set-cookie")).toEqual(cookies);
  },

  async "repeated request fields keep all values in order"(t: Tools): Promise<void> {
    rfc("9110-5.3-order");
    await t.ask(request("GET", "/", repeated));
    expect(t.upstream.calls[0]?.all("x-multi").join(", ")).toBe("1, 2, 3");
  },

  async "repeated request fields stay separate lines"(t: Tools): Promise<void> {
    await t.ask(request("GET", "/", repeated));
    expect(
      lower(named(t.upstream.calls[0]?.headers, /^x-/i)).filter(
        ([name]) => !/forwarded/.test(name),
      ),
    ).toEqual(lower(repeated));
  },

  async "repeated response fields keep all values in order"(t: Tools): Promise<void> {
    rfc("9110-5.3-order");
    t.upstream.script = (call) => call.reply(200, repeated, "body");
    expect((await t.ask(request("GET", "/"))).all("x-multi").join(", ")).toBe("1, 2, 3");
  },

  async "repeated response fields stay separate lines"(t: Tools): Promise<void> {
    t.upstream.script = (call) => call.reply(200, repeated, "body");
    const answer = await t.ask(request("GET", "/"));
    expect(answer.all("x-multi")).toEqual(["1", "2", "3"]);
  },

  async "several Cookie lines are not joined with a comma"(t: Tools): Promise<void> {
    await t.ask(
      request("GET", "/", [
        ["Cookie", "a=1"],
        ["Cookie", "b=2"],
      ]),
    );
    expect(t.upstream.calls[0]?.all("cookie").join("; ")).toBe("a=1; b=2");
  },

  async "latin-1 bytes in request fields stay single bytes"(t: Tools): Promise<void> {
    rfc("9110-5.5-opaque");
    await t.ask(request("GET", "/", [["X-Name", "caf\xe9 \xff\x80"]]));
    expect(t.upstream.calls[0]?.get("x-name")).toBe("caf\xe9 \xff\x80");
  },

  async "latin-1 bytes in response fields stay single bytes"(t: Tools): Promise<void> {
    rfc("9110-5.5-opaque");
    t.upstream.script = (call) => call.reply(200, [["X-Name", "caf\xe9 \xff\x80"]], "body");
    expect((await t.ask(request("GET", "/"))).get("x-name")).toBe("caf\xe9 \xff\x80");
  },

  async "latin-1 bytes in response fields stay single bytes when the body arrives late"(
    t: Tools,
  ): Promise<void> {
    for (const [early, late] of [
      ["", "late"],
      ["half ", "late"],
    ] as const) {
      t.upstream.script = (call) => {
        call.write(
          `HTTP/1.1 200 OK\r\nX-Name: caf\xe9\r\nContent-Length: ${early.length + 4}\r\n\r\n`,
          early,
        );
      };
      const client = await t.connect();
      client.send(request("GET", "/"));
      const call = await t.upstream.call(t.upstream.calls.length);
      const head = client.readHead();
      // Bun.serve sends the head only with the first bytes of the body, so do not wait for it for long.
      await Promise.race([head, pause(300)]);
      call.write(late);
      const answer = await client.readBody(await head);
      expect(answer.all("x-name")).toEqual(["caf\xe9"]);
      expect(answer.text).toBe(early + late);
    }
  },

  async "UTF-8 bytes in header fields pass unchanged in both directions"(t: Tools): Promise<void> {
    const utf8 = Buffer.from("naïve ☃").toString("latin1");
    t.upstream.script = (call) => call.reply(200, [["X-Name", call.get("x-name") ?? ""]], "body");
    const answer = await t.ask(request("GET", "/", [["X-Name", utf8]]));
    expect(t.upstream.calls[0]?.get("x-name")).toBe(utf8);
    expect(answer.get("x-name")).toBe(utf8);
  },

  async "request field names keep their case"(t: Tools): Promise<void> {
    await t.ask(
      request("GET", "/", [
        ["X-cAsE", "1"],
        ["ACCEPT", "*/*"],
        ["etag", "x"],
      ]),
    );
    expect(named(t.upstream.calls[0]?.headers, /^(x-case|accept|etag)$/i)).toEqual([
      ["X-cAsE", "1"],
      ["ACCEPT", "*/*"],
      ["etag", "x"],
    ]);
  },

  async "response field names keep their case"(t: Tools): Promise<void> {
    const fields: Header[] = [
      ["X-cAsE", "1"],
      ["ETAG", '"x"'],
      ["Content-type", "text/plain"],
    ];
    t.upstream.script = (call) => call.reply(200, fields, "body");
    const answer = await t.ask(request("GET", "/"));
    expect(named(answer.headers, /^(x-case|etag|content-type)$/i)).toEqual(fields);
  },

  async "the response keeps the upstream's reason phrase"(t: Tools): Promise<void> {
    t.upstream.script = (call) => call.reply("299 Fine By Me", [], "body");
    expect(await t.ask(request("GET", "/"))).toMatchObject({ status: 299, reason: "Fine By Me" });
  },

  async "a response with an unusual reason phrase is forwarded"(t: Tools): Promise<void> {
    rfc("9112-4-reason");
    for (const line of ["200 ", "200", "200 caf\xe9", "200 tab\there", "404 \xe2\x98\x83"]) {
      t.upstream.script = (call) => call.reply(line, [], "body");
      const answer = await t.ask(request("GET", "/"));
      expect(answer, line).toMatchObject({ status: Number(line.slice(0, 3)), text: "body" });
    }
  },

  async "names of object properties, such as constructor, are ordinary field names"(
    t: Tools,
  ): Promise<void> {
    const pattern = /^(constructor|tostring|hasownproperty|valueof)$/i;
    t.upstream.script = (call) => call.reply(200, inherited, "body");
    const answer = await t.ask(request("GET", "/", inherited));
    expect(sorted(named(t.upstream.calls[0]?.headers, pattern))).toEqual(sorted(inherited));
    expect(sorted(named(answer.headers, pattern))).toEqual(sorted(inherited));
  },

  async "__proto__ is an ordinary field name in a request"(t: Tools): Promise<void> {
    await t.ask(request("GET", "/", [["__proto__", "p"]]));
    expect(t.upstream.calls[0]?.all("__proto__")).toEqual(["p"]);
  },

  async "__proto__ is an ordinary field name in a response"(t: Tools): Promise<void> {
    t.upstream.script = (call) => call.reply(200, [["__proto__", "p"]], "body");
    expect((await t.ask(request("GET", "/"))).all("__proto__")).toEqual(["p"]);
  },

  async "the proxy neither adds nor overwrites request fields that do not concern it"(
    t: Tools,
  ): Promise<void> {
    rfc("9110-2.2-role", "9110-7.7-fields");
    const sent: Header[] = [
      ["If-None-Match", '"x"'],
      ["Sec-Fetch-Mode", "navigate"],
      ["X-Empty", ""],
    ];
    await t.ask(request("GET", "/", sent));
    const own = /^(host|connection|x-forwarded-(for|proto|host|port))$/i;
    const others = t.upstream.calls[0]?.headers.filter(([name]) => !own.test(name)) ?? [];
    expect(lower(others)).toEqual(lower(sent));
  },

  async "the proxy neither adds nor overwrites response fields"(t: Tools): Promise<void> {
    rfc("9110-7.7-fields");
    const sent: Header[] = [
      ["Date", "Wed, 21 Oct 2015 07:28:00 GMT"],
      ["Server", "upstream/1"],
      ["Content-Type", "x/y"],
      ["X-Empty", ""],
      ["Content-Length", "4"],
    ];
    t.upstream.script = (call) => call.reply(200, sent, "body");
    const answer = await t.ask(request("GET", "/"));
    const others = answer.headers.filter(([name]) => !/^(connection|keep-alive)$/i.test(name));
    expect(sorted(others)).toEqual(sorted(sent));
  },

  async "a response without Content-Type stays without one"(t: Tools): Promise<void> {
    t.upstream.script = (call) => call.reply(200, [], "body");
    expect((await t.ask(request("GET", "/"))).all("content-type")).toEqual([]);
  },

  async "a request and a response with hundreds of header fields pass"(t: Tools): Promise<void> {
    const many = Array.from({ length: 300 }, (_, index): Header => [`x-${index}`, `${index}`]);
    t.upstream.script = (call) => call.reply(200, many, "body");
    const answer = await t.ask(request("GET", "/", many));
    expect(sorted(named(t.upstream.calls[0]?.headers, /^x-\d+$/i))).toEqual(sorted(many));
    expect(lower(named(answer.headers, /^x-\d+$/i))).toHaveLength(300);
  },
};
