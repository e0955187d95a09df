/**
 * Fields that belong to one connection are not forwarded (RFC 9110 §7.6.1), and connections are kept after a request.
 */
import { expect } from "vitest";
import type { Answer } from "../helpers/client.ts";
import { advisory } from "../conformance/advisory.ts";
import { rfc } from "../conformance/rfc.ts";
import type { Tools } from "./_suite.ts";
import { request, type Header } from "../helpers/wire.ts";

/** Fields that `nominating` names. */
const nominated: Header[] = [
  ["X-Secret", "secret-777"],
  ["X-Other", "other-777"],
];

/** Hop-by-hop fields with distinctive values, because each side sends some of these fields for its own connection. */
const known: Header[] = [
  ["Keep-Alive", "timeout=77, max=777"],
  ["Proxy-Connection", "proxy-connection-777"],
  ["TE", "trailers, deflate;q=0.777"],
];

const hopByHop: Header[] = [
  ...known,
  ["Trailer", "X-Trailer-777"],
  ...nominated,
  ["X_Secret", "alias-777"],
];

const nominating: Header = ["Connection", "x-secret,X-OTHER , TE, connection-777"];

function expectNoneOf(headers: Header[]): void {
  // Leave out Host, because the digits 777 may occur in the upstream's port.
  const others = headers.filter(([name]) => !/^host$/i.test(name));
  expect(others.filter(([name, value]) => /777/.test(name + value))).toEqual([]);
}

export const hops = {
  async "RFC 9110 §7.6.1: request fields that Connection names are not forwarded, nor is its value"(
    t: Tools,
  ): Promise<void> {
    rfc("9110-7.6-hop-by-hop", "9110-7.6.1-connection");
    await t.ask(request("GET", "/", [nominating, ...nominated, ["X-Kept", "yes"]]));
    const [call] = t.upstream.calls;
    expect(call?.get("x-kept")).toBe("yes");
    expectNoneOf(call?.headers ?? []);
  },

  async "RFC 9110 §7.6.1: Keep-Alive, Proxy-Connection and TE of a request are not forwarded, although Connection does not name them"(
    t: Tools,
  ): Promise<void> {
    rfc("9110-7.6.1-known");
    await t.ask(request("GET", "/", known));
    expectNoneOf(t.upstream.calls[0]?.headers ?? []);
  },

  async "RFC 9110 §7.6.1: response fields that Connection names are not forwarded, nor is its value"(
    t: Tools,
  ): Promise<void> {
    advisory("GHSA-79qm-7rj5-m7r9");
    rfc("9110-7.6-hop-by-hop", "9110-7.6.1-connection");
    t.upstream.script = (call) => call.reply(200, [nominating, ...nominated, ["X-Kept", "yes"]]);
    const answer = await t.ask(request("GET", "/"));
    expect(answer.get("x-kept")).toBe("yes");
    expectNoneOf(answer.headers);
  },

  async "RFC 9110 §7.6.1: Keep-Alive and Proxy-Connection of a response are not forwarded, although Connection does not name them"(
    t: Tools,
  ): Promise<void> {
    rfc("9110-7.6.1-known");
    t.upstream.script = (call) =>
      call.reply(
        200,
        known.filter(([name]) => name !== "TE"),
      );
    expectNoneOf((await t.ask(request("GET", "/"))).headers);
  },

  async "hop-by-hop request fields, credentials for proxies and aliases of fields named in Connection are not forwarded"(
    t: Tools,
  ): Promise<void> {
    rfc("9112-7.4-te-chunked");
    const more: Header[] = [
      ["Proxy-Authorization", "Basic 777"],
      ["Proxy-Authenticate", "Basic realm=777"],
    ];
    const answer = await t.ask(
      request("POST", "/", [nominating, ...hopByHop, ...more, ["X-Kept", "yes"]], "body"),
    );
    expect(answer).toMatchObject({ status: 200, text: "body" });
    const [call] = t.upstream.calls;
    expect(call?.get("x-kept")).toBe("yes");
    expectNoneOf((call?.headers ?? []).filter(([name]) => !/^proxy-authenticate$/i.test(name)));
  },

  async "a request's Upgrade field is not forwarded"(t: Tools): Promise<void> {
    rfc("9110-7.8-ignored");
    const upgrade: Header[] = [
      ["Connection", "Upgrade, HTTP2-Settings, connection-777"],
      ["Upgrade", "upgrade-777"],
      ["HTTP2-Settings", "AAMAAABkAAQAAP__777"],
    ];
    const answer = await t.ask(request("POST", "/", upgrade, "body"));
    expect(answer).toMatchObject({ status: 200, text: "body" });
    expectNoneOf(t.upstream.calls[0]?.headers ?? []);
  },

  async "RFC 9110 §7.6.2: the proxy decrements Max-Forwards of OPTIONS, and forwards no request with 0"(
    t: Tools,
  ): Promise<void> {
    rfc("9110-7.6.2-update", "9110-7.6.2-zero");
    await t.ask(request("OPTIONS", "/", [["Max-Forwards", "7"]]));
    expect(t.upstream.calls.map((call) => call.get("max-forwards"))).toEqual(["6"]);
    await t.ask(request("OPTIONS", "/", [["Max-Forwards", "0"]]));
    expect(t.upstream.calls).toHaveLength(1);
  },

  async "the proxy answers OPTIONS itself at Max-Forwards 0, and refuses an invalid Max-Forwards"(
    t: Tools,
  ): Promise<void> {
    const ask = (value: string): Promise<Answer> =>
      t.ask(request("OPTIONS", "/", [["Max-Forwards", value]]));
    expect(await ask("7")).toMatchObject({ status: 200 });
    expect(await ask("0")).toMatchObject({ status: 200, length: 0 });
    expect(await ask("x")).toMatchObject({ status: 400 });
    expect(t.upstream.calls).toHaveLength(1);
  },

  async "the proxy answers TRACE at Max-Forwards 0 with the request, without its credentials"(
    t: Tools,
  ): Promise<void> {
    rfc("9110-7.6.2-zero", "9110-9.3.8-reflect", "9110-9.3.8-sensitive");
    const answer = await t.ask(
      request("TRACE", "/x?y", [
        ["X-Kept", "yes"],
        ["Max-Forwards", "0"],
        ["Cookie", "a=secret"],
        ["Authorization", "Basic secret"],
      ]),
      "tracing",
    );
    expect(answer).toMatchObject({ status: 200, cut: false });
    expect(answer.get("content-type")).toBe("message/http");
    expect(answer.text).toMatch(/^TRACE \/x\?y HTTP\/1\.1\r\n(?:[\w-]+: .*\r\n)+\r\n$/);
    expect(answer.text).toMatch(/^x-kept: yes\r$/im);
    expect(answer.text).not.toMatch(/secret/);
    expect(t.upstream.calls).toEqual([]);
  },

  async "the proxy decrements Max-Forwards of TRACE"(t: Tools): Promise<void> {
    const answer = await t.ask(request("TRACE", "/", [["Max-Forwards", "7"]]), "tracing");
    expect(answer).toMatchObject({ status: 200 });
    expect(t.upstream.calls.map((call) => call.get("max-forwards"))).toEqual(["6"]);
  },

  async "a request field that a second Connection line names is not forwarded"(
    t: Tools,
  ): Promise<void> {
    rfc("9110-7.6.1-connection");
    await t.ask(
      request("GET", "/", [
        ["Connection", "keep-alive"],
        ["X-Secret", "777"],
        ["connection", "x-secret"],
      ]),
    );
    expectNoneOf(t.upstream.calls[0]?.headers ?? []);
  },

  async "naming an end-to-end field in Connection does not change the request's framing or Host"(
    t: Tools,
  ): Promise<void> {
    const headers: Header[] = [["Connection", "content-length, host, content-type"]];
    const answer = await t.ask(request("POST", "/", headers, "body"));
    expect(answer).toMatchObject({ status: 200, text: "body" });
    expect(t.upstream.calls[0]?.get("host")).toBe(t.upstream.authority);
  },

  async "hono 720b5662: hop-by-hop response fields, Alt-Svc and aliases of fields named in Connection are not forwarded"(
    t: Tools,
  ): Promise<void> {
    const more: Header[] = [
      ["Proxy-Authenticate", "Basic realm=777"],
      ["Alt-Svc", 'h3=":777"'],
    ];
    t.upstream.script = (call) =>
      call.reply(200, [nominating, ...hopByHop, ...more, ["X-Kept", "yes"]], "body");
    const answer = await t.ask(request("GET", "/"));
    expect(answer).toMatchObject({ status: 200, text: "body" });
    expect(answer.get("x-kept")).toBe("yes");
    expectNoneOf(answer.headers);
  },

  async "an upstream that names framing fields in Connection does not change the response's framing"(
    t: Tools,
  ): Promise<void> {
    t.upstream.script = (call) =>
      call.reply(
        200,
        [
          ["Connection", "content-length, content-type, x-a"],
          ["X-A", "777"],
        ],
        "body",
      );
    const answer = await t.ask(request("GET", "/"));
    expect(answer).toMatchObject({ status: 200, text: "body" });
    expectNoneOf(answer.headers);
  },

  async "the client's Connection: close closes the client's connection and not the upstream's"(
    t: Tools,
  ): Promise<void> {
    rfc("9112-9.6-server-receives-close");
    const client = await t.connect();
    client.send(request("GET", "/", [["Connection", "close"]]));
    expect((await client.read()).status).toBe(200);
    expect(await client.rest()).toHaveLength(0);
    expect((await t.ask(request("GET", "/"))).status).toBe(200);
    expect(t.upstream.links).toHaveLength(1);
  },

  async "RFC 9112 §9.6: no request is sent on an upstream connection after a response with Connection: close"(
    t: Tools,
  ): Promise<void> {
    rfc("9112-9.6-client-receives-close");
    // The upstream does not close its end, so that a request could arrive on it.
    t.upstream.script = (call) => call.reply(200, [["Connection", "close"]], "body");
    for (let count = 0; count < 3; count++) {
      expect(await t.ask(request("GET", "/"))).toMatchObject({ status: 200, text: "body" });
    }
    expect(t.upstream.links.map(({ calls }) => calls.length)).toEqual([1, 1, 1]);
  },

  async "the upstream's Connection: close closes the upstream's connection and not the client's"(
    t: Tools,
  ): Promise<void> {
    t.upstream.script = (call) => {
      call.reply(200, [["Connection", "close"]], "body");
      call.close();
    };
    const client = await t.connect();
    for (let count = 0; count < 3; count++) {
      client.send(request("GET", "/"));
      expect(await client.read()).toMatchObject({ status: 200, text: "body" });
    }
    expect(t.upstream.links).toHaveLength(3);
  },

  async "50 sequential requests use one upstream connection"(t: Tools): Promise<void> {
    rfc("9112-9.3-persistent");
    const client = await t.connect();
    for (let count = 0; count < 50; count++) {
      client.send(
        request(count % 2 ? "POST" : "GET", `/${count}`, [], count % 2 ? `${count}` : undefined),
      );
      expect(await client.read()).toMatchObject({ status: 200, text: count % 2 ? `${count}` : "" });
    }
    expect(t.upstream.calls.map((call) => call.target)).toEqual(
      Array.from({ length: 50 }, (_, count) => `/${count}`),
    );
    expect(t.upstream.links).toHaveLength(1);
  },

  async "pipelined requests get their responses in order"(t: Tools): Promise<void> {
    rfc("9112-9.3.2-order");
    const client = await t.connect();
    const targets = ["/1", "/2", "/3", "/4", "/5"];
    t.upstream.script = (call) => call.reply(200, [], call.target);
    client.send(...targets.map((target) => request("GET", target)));
    for (const target of targets) {
      expect(await client.read()).toMatchObject({ status: 200, text: target });
    }
  },

  async "an HTTP/1.0 client gets a body without chunked coding"(t: Tools): Promise<void> {
    rfc("9112-6.1-to-http10");
    t.upstream.script = (call) => {
      // A proxy may forward the request as HTTP/1.0. Then the upstream must not use the chunked coding.
      if (/ HTTP\/1\.0\r\n/.test(call.head)) call.reply(200, [], "hello");
      else call.reply(200, [["Transfer-Encoding", "chunked"]], "5\r\nhello\r\n0\r\n\r\n");
    };
    const answer = await t.ask("GET / HTTP/1.0\r\nHost: proxy.test\r\n\r\n");
    expect(answer.all("transfer-encoding")).toEqual([]);
    expect(answer).toMatchObject({ status: 200, text: "hello", cut: false });
  },
};
