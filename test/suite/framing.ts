/** Requests whose length two parsers could read differently (request smuggling), and requests without a body. */
import { expect } from "vitest";
import type { Client } from "../helpers/client.ts";
import { advisory } from "../conformance/advisory.ts";
import { rfc } from "../conformance/rfc.ts";
import type { Tools } from "./_suite.ts";
import { until } from "../helpers/wait.ts";
import { chunk, lastChunk, request, type Header } from "../helpers/wire.ts";

const smuggled = "GET /secret HTTP/1.1\r\nHost: inner.test\r\n\r\n";

/** Expects that a further request on the same client connection arrives unchanged. */
async function expectNext({ upstream }: Tools, client: Client): Promise<void> {
  const before = upstream.calls.length;
  client.send(request("POST", "/next", [["X-Id", "next"]], "follows"));
  expect(await client.read()).toMatchObject({ status: 200, text: "follows" });
  expect(upstream.calls.slice(before).map((call) => `${call.method} ${call.target}`)).toEqual([
    "POST /next",
  ]);
}

async function sendUpgradeWithBody(tools: Tools, method: string, fields: Header[]): Promise<void> {
  const client = await tools.connect();
  const headers: Header[] = [["Transfer-Encoding", "chunked"], ...fields];
  client.send(request(method, "/rw", headers), chunk(smuggled), lastChunk);
  const answer = await client.read();
  if (tools.mayRefuse(answer)) return;
  expect(answer).toMatchObject({ status: 200, text: smuggled });
  expect(tools.upstream.calls).toHaveLength(1);
  expect(tools.upstream.calls[0]).toMatchObject({ method, target: "/rw", text: smuggled });
  await expectNext(tools, client);
}

const ambiguous: [name: string, headers: Header[], body: Uint8Array][] = [
  ["chunked, gzip", [["Transfer-Encoding", "chunked, gzip"]], chunk("hello")],
  ["chunked,", [["Transfer-Encoding", "chunked,"]], chunk("hello")],
  [",chunked", [["Transfer-Encoding", ",chunked"]], chunk("hello")],
  ["identity, chunked", [["Transfer-Encoding", "identity, chunked"]], chunk("hello")],
  [
    "chunked twice",
    [
      ["Transfer-Encoding", "chunked"],
      ["Transfer-Encoding", "chunked"],
    ],
    chunk("hello"),
  ],
  ["xchunked", [["Transfer-Encoding", "xchunked"]], chunk("hello")],
  ["vertical tab", [["Transfer-Encoding", "\vchunked"]], chunk("hello")],
  ["space before the colon", [["Transfer-Encoding ", "chunked"]], chunk("hello")],
];

export const framing = {
  async "CVE-2026-29057: DELETE with Connection: upgrade keeps its chunked body"(
    t: Tools,
  ): Promise<void> {
    await sendUpgradeWithBody(t, "DELETE", [["Connection", "keep-alive, upgrade"]]);
  },

  async "CVE-2026-29057: OPTIONS with Connection: upgrade keeps its chunked body"(
    t: Tools,
  ): Promise<void> {
    await sendUpgradeWithBody(t, "OPTIONS", [["Connection", "keep-alive, upgrade"]]);
  },

  async "CVE-2026-29057: naming Transfer-Encoding in Connection does not remove the body's framing"(
    t: Tools,
  ): Promise<void> {
    advisory("CVE-2026-26365");
    await sendUpgradeWithBody(t, "DELETE", [["Connection", "Transfer-Encoding, upgrade"]]);
  },

  async "CVE-2026-29057: Upgrade: h2c does not remove the body's framing"(t: Tools): Promise<void> {
    await sendUpgradeWithBody(t, "DELETE", [
      ["Connection", "keep-alive, upgrade"],
      ["Upgrade", "h2c"],
    ]);
  },

  async "the body of a GET is forwarded with its framing, or refused, and never dropped"(
    t: Tools,
  ): Promise<void> {
    rfc("9110-8.6-incorrect", "9110-9.3.1-content");
    const body = smuggled.padEnd(200, "x");
    const bytes = [
      request("GET", "/one", [], body),
      Buffer.concat([
        request("GET", "/one", [["Transfer-Encoding", "chunked"]]),
        chunk(body),
        lastChunk,
      ]),
    ];
    for (const each of bytes) {
      const answer = await t.ask(each);
      if (answer.status === 501) expect(t.upstream.calls).toEqual([]);
      else expect(t.upstream.calls.map(({ text }) => text)).toEqual([body]);
      await t.upstream.reset();
    }
  },

  async "a GET, HEAD or DELETE with a body closes its connection to the upstream, which might leave the body unread"(
    t: Tools,
  ): Promise<void> {
    for (const method of ["GET", "HEAD", "DELETE"]) {
      await t.upstream.reset();
      t.upstream.script = (call) => call.reply(200, [], "");
      // Open an upstream connection first. The request may reuse it, but must close it afterwards.
      await t.ask(request("GET", "/before"));
      const client = await t.connect();
      client.send(request(method, "/one", [], smuggled.padEnd(200, "x")));
      expect((await client.read(method)).status).toBe(200);
      await t.ask(request("GET", "/two"));
      const [one, two] = t.upstream.calls.slice(-2);
      expect([one?.target, two?.target]).toEqual(["/one", "/two"]);
      expect(one?.get("connection"), method).toBe("close");
      expect(two?.link).not.toBe(one?.link);
    }
  },

  async "a GET that announces a body and sends none does not desynchronize the pooled connection"(
    t: Tools,
  ): Promise<void> {
    rfc("9110-8.6-incorrect");
    t.upstream.script = (call) => call.reply(200, [], call.target);
    for (const how of ["FIN", "RST"] as const) {
      const client = await t.connect();
      client.send(request("GET", "/claims", [["Content-Length", "200"]]));
      const other = await t.connect();
      other.send(request("GET", "/during"));
      expect(await other.read()).toMatchObject({ status: 200, text: "/during" });
      client.leave(how);
      other.send(request("GET", "/after"));
      expect(await other.read()).toMatchObject({ status: 200, text: "/after" });
    }
    // The proxy may wait for the announced body. The only request with a body that may reach the upstream is `/claims`, and
    // its body must be incomplete.
    for (const call of t.upstream.calls) {
      if (call.framing.kind !== "none")
        expect([call.target, call.state]).toEqual(["/claims", "cut"]);
    }
    const others = t.upstream.calls.filter((call) => call.target !== "/claims");
    expect(others.map((call) => call.target)).toEqual(["/during", "/after", "/during", "/after"]);
  },

  async "a GET without a body is forwarded without Content-Length and Transfer-Encoding"(
    t: Tools,
  ): Promise<void> {
    rfc("9110-8.6-request", "9110-9.3.1-content");
    expect(await t.ask(request("GET", "/"))).toMatchObject({ status: 200, text: "" });
    expect(t.upstream.calls[0]?.framing).toEqual({ kind: "none" });
    const empty = request("GET", "/", [["Content-Length", "0"]]);
    expect(await t.ask(empty)).toMatchObject({ status: 200, text: "" });
    expect(t.upstream.calls[1]?.length).toBe(0);
  },

  async "RFC 9112 §6.3: Content-Length together with Transfer-Encoding never reaches the upstream"(
    t: Tools,
  ): Promise<void> {
    rfc("9112-6.3-both-received", "9112-6.2-both-sent");
    const headers: Header[] = [
      ["Content-Length", "5"],
      ["Transfer-Encoding", "chunked"],
    ];
    for (const each of [headers, headers.toReversed()]) {
      const client = await t.connect();
      client.send(request("POST", "/", each), chunk("hello"), lastChunk);
      const call = t.refusedOrOne(await client.read());
      if (call) expect(call.text).toBe("hello");
      await t.upstream.reset();
    }
  },

  async "RFC 9112 §6.3: a request whose Transfer-Encoding is not just chunked is refused, or forwarded with new framing"(
    t: Tools,
  ): Promise<void> {
    for (const [name, headers, body] of ambiguous) {
      const client = await t.connect();
      client.send(request("POST", "/", headers), body, lastChunk);
      // 501 refuses a transfer coding that the server does not know, 400 a value that is not a transfer coding.
      const call = t.refusedOrOne(await client.read(), [400, 501]);
      if (call) expect(call.text, name).toBe("hello");
      await t.upstream.reset();
    }
  },

  async "RFC 9112 §6.1: a request with a transfer coding that the server does not decode is refused"(
    t: Tools,
  ): Promise<void> {
    const headers: Header[] = [["Transfer-Encoding", "gzip, chunked"]];
    const client = await t.connect();
    client.send(request("POST", "/", headers), chunk("not unzipped"), lastChunk);
    expect([400, 501]).toContain((await client.read()).status);
  },

  async "CVE-2026-1525: a request with two different Content-Lengths is refused, or forwarded with one"(
    t: Tools,
  ): Promise<void> {
    const client = await t.connect();
    client.send(
      request("POST", "/", [
        ["Content-Length", "5"],
        ["content-length", "6"],
      ]),
      "hello!",
    );
    t.refusedOrOne(await client.read());
  },

  async "CVE-2026-1525: a request whose Content-Length is not a plain number is refused"(
    t: Tools,
  ): Promise<void> {
    rfc("9110-8.6-malformed", "9110-8.6-large");
    for (const value of ["+5", "0x5", "5 5", "-5", "5.0", "99999999999999999999"]) {
      const client = await t.connect();
      client.send(request("POST", "/", [["Content-Length", value]]), "hello");
      const answer = await client.read();
      if (!t.mayRefuse(answer)) expect(answer.status, value).toBe(400);
      expect(t.upstream.calls.filter((call) => call.state === "complete")).toEqual([]);
    }
  },

  async "a request whose Content-Length is a list is refused"(t: Tools): Promise<void> {
    const client = await t.connect();
    client.send(request("POST", "/", [["Content-Length", "5, 5"]]), "hello");
    expect((await client.read()).status).toBe(400);
    expect(t.upstream.calls).toEqual([]);
  },

  async "CVE-2026-23527: a body with Transfer-Encoding: ChunKed is read completely and forwarded"(
    t: Tools,
  ): Promise<void> {
    rfc("9112-7.1-chunked");
    const client = await t.connect();
    client.send(
      request("POST", "/", [["Transfer-Encoding", "ChunKed"]]),
      chunk("hello"),
      lastChunk,
    );
    expect(await client.read()).toMatchObject({ status: 200, text: "hello" });
    await expectNext(t, client);
  },

  async "a chunk's size, extension and line end cannot smuggle another request"(
    t: Tools,
  ): Promise<void> {
    const bodies = [
      "5\nhello\r\n0\r\n\r\n",
      "5\r\nhelloXX0\r\n\r\n",
      "-1\r\n\r\n",
      "zz\r\n\r\n",
      "5;a=\n\rb\r\nhello\r\n0\r\n\r\n",
    ];
    for (const body of bodies) {
      const client = await t.connect();
      client.send(request("POST", "/", [["Transfer-Encoding", "chunked"]]), body);
      client.finish();
      await client.rest();
      await until(() => t.upstream.calls.every((call) => call.state !== "reading"), body);
      expect(
        t.upstream.calls.filter((call) => call.state === "complete"),
        body,
      ).toEqual([]);
    }
  },

  async "a request with a malformed header line is refused, or forwarded without an injected field"(
    t: Tools,
  ): Promise<void> {
    for (const line of [
      "X-A : b",
      " X-A: b",
      "X-A\0: b",
      "X-A: b\0",
      "X-A: b\rX-B: c",
      ": b",
      "X A: b",
    ]) {
      const answer = await t.ask(`GET / HTTP/1.1\r\nHost: proxy.test\r\n${line}\r\n\r\n`);
      const call = t.refusedOrOne(answer);
      if (call)
        expect(
          call.names.filter((name) => name.startsWith("x-b")),
          line,
        ).toEqual([]);
      await t.upstream.reset();
    }
  },
};
