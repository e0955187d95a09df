/**
 * Requirements of the RFCs that no other theme covers. The host's server or the HTTP client must fulfil most of them.
 */
import { gzipSync } from "node:zlib";
import { expect } from "vitest";
import type { Client } from "../helpers/client.ts";
import { rfc } from "../conformance/rfc.ts";
import { handshake } from "../helpers/handshake.ts";
import type { Tools } from "./_suite.ts";
import { pause, until, within } from "../helpers/wait.ts";
import { chunk, lastChunk, request, type Header } from "../helpers/wire.ts";

const HOST = "Host: proxy.test\r\n";
const IMF_FIXDATE = /^[A-Z][a-z]{2}, \d\d [A-Z][a-z]{2} \d{4} \d\d:\d\d:\d\d GMT$/;

/** A size that every known server finds too large for a header section, in bytes. */
const TOO_LARGE = 2 ** 20 + 2 ** 16;

/** Reads until the server closes the connection. */
async function readToEnd(client: Client): Promise<string> {
  return (await within(client.rest(), "the connection's end")).toString("latin1");
}

/**
 * Sends a request after which the server must close the connection, and a second one behind it. The first must get the
 * status, and the second must not reach the upstream.
 */
async function expectLast(t: Tools, faulty: string, status: RegExp): Promise<void> {
  const client = await t.connect();
  client.send(faulty, request("GET", "/second"));
  const text = await readToEnd(client);
  expect(text, faulty).toMatch(new RegExp(`^HTTP/1\\.1 ${status.source} `));
  expect(t.upstream.calls.map((call) => call.target)).not.toContain("/second");
  await t.upstream.reset();
}

/**
 * Sends a request with a part that is too large, and returns the status of the response. A server that closes the
 * connection while the client still sends resets it, and a reset may destroy the response (RFC 9112 §9.6). A request
 * whose response is lost is sent again on a new connection, up to four times.
 */
async function statusOfTooLarge(t: Tools, bytes: Uint8Array): Promise<number> {
  for (let attempt = 1; ; attempt++) {
    try {
      return (await t.ask(bytes)).status;
    } catch (error) {
      const reset = String(error).includes("connection closed before a response head");
      if (!reset || attempt === 5) throw error;
    }
  }
}

/** Expects that these fields of a request and of its response arrive unchanged. */
async function expectUnchanged(t: Tools, sent: Header[], told: Header[]): Promise<void> {
  t.upstream.script = (call) => call.reply(401, told, "body");
  const answer = await t.ask(request("GET", "/", sent));
  expect(answer.status).toBe(401);
  for (const [name, value] of sent) expect(t.upstream.calls[0]?.all(name), name).toEqual([value]);
  for (const [name, value] of told) expect(answer.all(name), name).toEqual([value]);
}

export const conformance = {
  async "RFC 9110 §6.6.1: a response without Date gets one"(t: Tools): Promise<void> {
    rfc("9110-6.6.1-date-forwarded");
    for (const body of ["", "body"]) {
      t.upstream.script = (call) => call.reply(200, [], body);
      const dates = (await t.ask(request("GET", "/"))).all("date");
      expect(dates).toHaveLength(1);
      expect(dates[0]).toMatch(IMF_FIXDATE);
    }
  },

  async "RFC 9110 §7.7: a response with Date keeps it"(t: Tools): Promise<void> {
    rfc("9110-7.7-fields");
    const old = "Wed, 21 Oct 2015 07:28:00 GMT";
    t.upstream.script = (call) => call.reply(200, [["Date", old]], "body");
    expect((await t.ask(request("GET", "/"))).all("date")).toEqual([old]);
  },

  async "RFC 9110 §6.6.1: an error response of the proxy has a Date"(t: Tools): Promise<void> {
    rfc("9110-6.6.1-date-origin");
    const answer = await t.ask(request("OPTIONS", "/", [["Max-Forwards", "x"]]));
    expect(answer.status).toBe(400);
    expect(answer.all("date")).toHaveLength(1);
    expect(answer.get("date")).toMatch(IMF_FIXDATE);
  },

  async "RFC 9112 §2.2: an empty line in front of a request is ignored"(t: Tools): Promise<void> {
    rfc("9112-2.2-empty-line");
    const client = await t.connect();
    client.send("\r\n", request("GET", "/first"));
    expect((await client.read()).status).toBe(200);
    client.send("\r\n", request("GET", "/second"));
    expect((await client.read()).status).toBe(200);
    expect(t.upstream.calls.map((call) => call.target)).toEqual(["/first", "/second"]);
  },

  async "RFC 9112 §3: a target that is too long gets 414"(t: Tools): Promise<void> {
    rfc("9112-3-long-target");
    expect(await statusOfTooLarge(t, request("GET", `/${"x".repeat(TOO_LARGE)}`))).toBe(414);
    expect(t.upstream.calls).toEqual([]);
  },

  async "RFC 9110 §5.4: fields that are too large get a status of 4xx"(t: Tools): Promise<void> {
    rfc("9110-5.4-limits");
    const field: Header = ["X-A", "x".repeat(TOO_LARGE)];
    const status = await statusOfTooLarge(t, request("GET", "/", [field]));
    expect([400, 413, 431]).toContain(status);
    expect(t.upstream.calls).toEqual([]);
  },

  async "RFC 9112 §3: a method that is longer than any known one is forwarded, or gets 501"(
    t: Tools,
  ): Promise<void> {
    rfc("9112-3-long-method");
    const method = "X".repeat(200);
    const { status } = await t.ask(request(method, "/"));
    expect([200, 501]).toContain(status);
    expect(t.upstream.calls.map((call) => call.method)).toEqual(status === 200 ? [method] : []);
  },

  async "RFC 9110 §5.1: unknown fields, credentials and preconditions pass unchanged"(
    t: Tools,
  ): Promise<void> {
    rfc(
      "9110-5.1-unrecognized",
      "9110-10.2.1-allow",
      "9110-11.6.1-www-authenticate",
      "9110-11.6.2-authorization",
      "9110-13.2.1-forward",
    );
    const sent: Header[] = [
      ["X-Unknown", "a;b=c"],
      ["Authorization", 'Digest username="a, b"'],
      ["If-Match", '"a", W/"b"'],
      ["If-None-Match", "*"],
      ["If-Modified-Since", "Wed, 21 Oct 2015 07:28:00 GMT"],
      ["If-Unmodified-Since", "no date"],
    ];
    const told: Header[] = [
      ["X-Unknown", "a;b=c"],
      ["WWW-Authenticate", 'Basic realm="a, b", Bearer'],
      ["Allow", "GET, X-OTHER"],
    ];
    await expectUnchanged(t, sent, told);
  },

  async "RFC 9110 §7.7: fields about the resource and its representation pass unchanged"(
    t: Tools,
  ): Promise<void> {
    rfc("9110-7.7-fields", "9110-10.1.3-referer");
    const sent: Header[] = [
      ["Referer", "http://proxy.test/from?x"],
      ["Range", "bytes=0-"],
      ["If-Range", '"a"'],
    ];
    const told: Header[] = [
      ["Vary", "*"],
      ["ETag", 'W/"a"'],
      ["Last-Modified", "Wed, 21 Oct 2015 07:28:00 GMT"],
      ["Retry-After", "5"],
    ];
    await expectUnchanged(t, sent, told);
  },

  async "RFC 9209 §2: the Proxy-Status of an upstream passes unchanged"(t: Tools): Promise<void> {
    rfc("9209-2-members");
    await expectUnchanged(t, [], [["Proxy-Status", "inner; error=dns_timeout"]]);
  },

  async "RFC 9110 §7.7: a response with no-transform arrives with its bytes and its content coding"(
    t: Tools,
  ): Promise<void> {
    rfc("9110-7.7-no-transform");
    const body = gzipSync("a body that compresses well; ".repeat(400));
    const fields: Header[] = [
      ["Cache-Control", "no-transform"],
      ["Content-Encoding", "gzip"],
    ];
    t.upstream.script = (call) => call.reply(200, fields, body);
    for (const accepted of [[], [["Accept-Encoding", "gzip"]]] as Header[][]) {
      const answer = await t.ask(request("GET", "/", accepted));
      expect(answer.all("content-encoding")).toEqual(["gzip"]);
      expect(answer.body.equals(body)).toBe(true);
    }
  },

  async "RFC 9110 §7.7: a request without Accept, Accept-Encoding, Accept-Language and User-Agent gets none"(
    t: Tools,
  ): Promise<void> {
    rfc("9110-7.7-fields");
    await t.ask(request("GET", "/"));
    const added = t.upstream.calls[0]?.names.filter((name) => /^(?:accept|user-agent)/.test(name));
    expect(added).toEqual([]);
  },

  async "RFC 9110 §14.4: a 206 with an unknown range unit passes"(t: Tools): Promise<void> {
    rfc("9110-14.4-unknown-unit");
    const range: Header = ["Content-Range", "lines 2-3/9"];
    t.upstream.script = (call) => call.reply("206 Partial Content", [range], "2\n3\n");
    const answer = await t.ask(request("GET", "/", [["Range", "lines=2-3"]]));
    expect(answer).toMatchObject({ status: 206, text: "2\n3\n" });
    expect(answer.all("content-range")).toEqual([range[1]]);
    expect(t.upstream.calls[0]?.all("range")).toEqual(["lines=2-3"]);
  },

  async "RFC 9110 §9.3.7: no Max-Forwards is added, and methods other than TRACE and OPTIONS keep it"(
    t: Tools,
  ): Promise<void> {
    rfc("9110-9.3.7-max-forwards");
    expect((await t.ask(request("OPTIONS", "/"))).status).toBe(200);
    expect((await t.ask(request("GET", "/", [["Max-Forwards", "0"]]))).status).toBe(200);
    expect(t.upstream.calls.map((call) => call.all("max-forwards"))).toEqual([[], ["0"]]);
  },

  async "RFC 9112 §9.3: the connection of an HTTP/1.0 client that does not send keep-alive is closed"(
    t: Tools,
  ): Promise<void> {
    const client = await t.connect();
    client.send(`GET / HTTP/1.0\r\n${HOST}\r\n`);
    expect((await client.read()).status).toBe(200);
    // The limit of 4 s is shorter than the idle timeout: an idle connection would still be open.
    expect((await within(client.rest(), "the connection's end", 4000)).length).toBe(0);
  },

  async "RFC 9112 §6.1: after a chunked request with Content-Length, the connection is closed"(
    t: Tools,
  ): Promise<void> {
    rfc("9112-6.1-both-closes");
    const fields = ["Content-Length: 5", "Transfer-Encoding: chunked"];
    for (const each of [fields, fields.toReversed()]) {
      const head = `POST / HTTP/1.1\r\n${HOST}${each.join("\r\n")}\r\n\r\n`;
      await expectLast(t, `${head}${chunk("hello").toString()}${lastChunk.toString()}`, /\d{3}/);
    }
  },

  async "RFC 9112 §6.3: an invalid Content-Length gets 400, and the connection is closed"(
    t: Tools,
  ): Promise<void> {
    rfc("9112-6.3-length-request");
    for (const value of ["+5", "five", "5, 6", "-1"]) {
      await expectLast(t, `POST / HTTP/1.1\r\n${HOST}Content-Length: ${value}\r\n\r\nhello`, /400/);
    }
  },

  async "RFC 9112 §6.3: a final transfer coding other than chunked gets 400 or 501, and the connection is closed"(
    t: Tools,
  ): Promise<void> {
    rfc("9112-6.3-not-chunked-last");
    for (const value of ["chunked, gzip", "gzip"]) {
      const head = `POST / HTTP/1.1\r\n${HOST}Transfer-Encoding: ${value}\r\n\r\n`;
      // The server may also take the coding for one that it does not understand (§6.1).
      await expectLast(t, `${head}5\r\nhello\r\n0\r\n\r\n`, /(?:400|501)/);
    }
  },

  async "RFC 9112 §9.6: the last response on a connection has Connection: close"(
    t: Tools,
  ): Promise<void> {
    rfc("9112-9.6-close-sent");
    const client = await t.connect();
    client.send(request("GET", "/", [["Connection", "close"]]));
    expect((await client.read()).get("connection")?.toLowerCase()).toBe("close");
    expect(await readToEnd(client)).toBe("");
  },

  async "RFC 9112 §9.6: bytes after a request with Connection: close are not processed"(
    t: Tools,
  ): Promise<void> {
    rfc("9112-9.6-server-receives-close");
    const client = await t.connect();
    client.send(request("GET", "/first", [["Connection", "close"]]), request("GET", "/second"));
    await readToEnd(client);
    expect(t.upstream.calls.map((call) => call.target)).not.toContain("/second");
  },

  async "RFC 9112 §5.2: a folded line in a request gets 400, or its fold becomes spaces"(
    t: Tools,
  ): Promise<void> {
    rfc("9112-5.2-fold-request", "9112-5.2-fold-sent");
    const answer = await t.ask(`GET / HTTP/1.1\r\n${HOST}X-A: b\r\n\tc\r\n\r\n`);
    const call = t.refusedOrOne(answer, [400]);
    if (call) expect(call.get("x-a")).toMatch(/^b +\t?c$/);
  },

  async "RFC 9110 §7.8: Upgrade in an HTTP/1.0 request is ignored"(t: Tools): Promise<void> {
    rfc("9110-7.8-http10");
    const upgrade = handshake.map((field) => `${field.join(": ")}\r\n`).join("");
    const answer = await t.ask(`GET /old HTTP/1.0\r\n${HOST}${upgrade}\r\n`);
    expect(answer.status).toBe(200);
    const [call] = t.upstream.calls;
    expect(call?.target).toBe("/old");
    // A proxy may forward the request as HTTP/1.0. Then the upstream ignores the field.
    if (!/ HTTP\/1\.0\r\n/.test(call?.head ?? "")) expect(call?.all("upgrade")).toEqual([]);
  },

  async "RFC 9110 §6.2: an HTTP/1.0 request is forwarded as HTTP/1.1"(t: Tools): Promise<void> {
    rfc("9112-2.3-own-version", "9110-6.2-request-version");
    expect((await t.ask(`GET / HTTP/1.0\r\n${HOST}\r\n`)).status).toBe(200);
    expect(t.upstream.calls[0]?.head).toMatch(/^GET \/ HTTP\/1\.1\r\n/);
  },

  async "RFC 9110 §6.2: an HTTP/1.0 request is answered as HTTP/1.1"(t: Tools): Promise<void> {
    rfc("9112-2.3-own-version", "9110-6.2-response-version");
    const answer = await t.ask(`GET / HTTP/1.0\r\n${HOST}\r\n`);
    expect(answer).toMatchObject({ status: 200, version: "1.1" });
  },

  async "RFC 9110 §15: a response with an unknown status passes unchanged"(
    t: Tools,
  ): Promise<void> {
    rfc("9110-15-class");
    for (const status of [299, 399, 471, 599]) {
      t.upstream.script = (call) => call.reply(status, [], "body");
      expect(await t.ask(request("GET", "/"))).toMatchObject({ status, text: "body" });
    }
  },

  async "RFC 9110 §5.6.1.2: empty list elements in Connection are ignored"(
    t: Tools,
  ): Promise<void> {
    rfc("9110-5.6.1.2-empty-received");
    const headers: Header[] = [
      ["Connection", ", ,x-secret,, keep-alive,"],
      ["X-Secret", "777"],
      ["X-Kept", "yes"],
    ];
    expect((await t.ask(request("GET", "/", headers))).status).toBe(200);
    expect(t.upstream.calls[0]?.all("x-secret")).toEqual([]);
    expect(t.upstream.calls[0]?.all("x-kept")).toEqual(["yes"]);
  },

  async "RFC 9112 §9.3: a request body that is unread when the response is sent is not parsed as the next request"(
    t: Tools,
  ): Promise<void> {
    rfc("9112-9.3-read-request");
    const hidden = request("GET", "/hidden");
    const client = await t.connect();
    const length: Header = ["Content-Length", String(hidden.length)];
    // The proxy answers a request with an invalid Max-Forwards itself, without reading its body.
    client.send(request("OPTIONS", "/", [["Max-Forwards", "x"], length]), hidden);
    expect((await client.read()).status).toBe(400);
    client.send(request("GET", "/next"));
    await client.read().catch(() => {});
    await until(() => t.upstream.calls.length > 0 || client.isClosed, "the next request");
    expect(t.upstream.calls.map((call) => call.target)).not.toContain("/hidden");
  },

  async "RFC 9112 §5.1: white space in front of the colon of a request field gets 400"(
    t: Tools,
  ): Promise<void> {
    rfc("9112-5.1-space-request");
    for (const head of [`${HOST}X-A : b\r\n`, `${HOST}X-A\t: b\r\n`]) {
      expect((await t.ask(`GET / HTTP/1.1\r\n${head}\r\n`)).status, head).toBe(400);
      expect(t.upstream.calls, head).toEqual([]);
    }
  },

  async "RFC 9112 §2.2: white space in front of the first field is refused, or that line is ignored"(
    t: Tools,
  ): Promise<void> {
    rfc("9112-2.2-leading-space");
    for (const head of [` X-A: b\r\n${HOST}`, `\tX-A: b\r\n${HOST}`]) {
      const call = t.refusedOrOne(await t.ask(`GET / HTTP/1.1\r\n${head}\r\n`), [400]);
      if (call) expect(call.all("x-a"), head).toEqual([]);
      await t.upstream.reset();
    }
  },

  async "RFC 9112 §2.2: bytes that are no HTTP request get 400, and the connection is closed"(
    t: Tools,
  ): Promise<void> {
    rfc("9112-2.2-grammar");
    await expectLast(t, "\x16\x03\x01 no HTTP\r\n\r\n", /400/);
    await expectLast(t, `GET / HTTP/1.1\r\n${HOST}no field\r\n\r\n`, /400/);
  },

  async "RFC 9112 §5.1: a response does not pass with white space in front of a colon"(
    t: Tools,
  ): Promise<void> {
    rfc("9112-5.1-space-response");
    t.upstream.script = (call) =>
      call.write("HTTP/1.1 200 OK\r\nX-A : b\r\nContent-Length: 0\r\n\r\n");
    // The parser of this client accepts no white space there.
    const answer = await t.ask(request("GET", "/"));
    if (answer.status !== 200) t.expectGatewayError(answer, 502);
  },

  async "RFC 9112 §5.2: a folded line in a response becomes 502, or its fold becomes spaces"(
    t: Tools,
  ): Promise<void> {
    rfc("9112-5.2-fold-response");
    t.upstream.script = (call) =>
      call.write("HTTP/1.1 200 OK\r\nX-A: b\r\n\tc\r\nContent-Length: 0\r\n\r\n");
    const answer = await t.ask(request("GET", "/"));
    if (answer.status === 200) expect(answer.get("x-a")).toMatch(/^b +\t?c$/);
    else t.expectGatewayError(answer, 502);
  },

  async "RFC 9110 §5.5: CR and NUL in a field's value are refused, or become spaces"(
    t: Tools,
  ): Promise<void> {
    rfc("9110-5.5-control", "9112-2.2-bare-cr");
    for (const character of ["\0", "\r"]) {
      const answer = await t.ask(`GET / HTTP/1.1\r\n${HOST}X-A: b${character}c\r\n\r\n`);
      const call = t.refusedOrOne(answer, [400]);
      if (call) expect(call.get("x-a")).toBe("b c");
      await t.upstream.reset();
    }
  },

  async "RFC 9112 §6.1: a transfer coding that is not understood gets 501"(
    t: Tools,
  ): Promise<void> {
    rfc("9112-6.1-unknown-coding");
    const client = await t.connect();
    client.send(request("POST", "/", [["Transfer-Encoding", "gzip, chunked"]]), lastChunk);
    expect((await client.read()).status).toBe(501);
    expect(t.upstream.calls).toEqual([]);
  },

  async "RFC 9110 §8.6: a 204 has neither a length nor a transfer coding"(t: Tools): Promise<void> {
    rfc("9110-8.6-204", "9112-6.1-bodyless");
    for (const field of ["Content-Length: 0", "Transfer-Encoding: chunked"]) {
      t.upstream.script = (call) => call.write(`HTTP/1.1 204 No Content\r\n${field}\r\n\r\n`);
      const answer = await t.ask(request("GET", "/"));
      expect(answer.status, field).toBe(204);
      expect(answer.all("content-length"), field).toEqual([]);
      expect(answer.all("transfer-encoding"), field).toEqual([]);
    }
  },

  async "RFC 9112 §4: a space follows the status even if there is no reason phrase"(
    t: Tools,
  ): Promise<void> {
    rfc("9112-4-space");
    t.upstream.script = (call) => call.write("HTTP/1.1 471 \r\nContent-Length: 0\r\n\r\n");
    const answer = await t.ask(request("GET", "/"));
    expect(answer.bytes.toString("latin1")).toMatch(/^HTTP\/1\.1 471 /);
  },

  async "RFC 9110 §7.1: asterisk-form and authority-form are not forwarded with GET"(
    t: Tools,
  ): Promise<void> {
    rfc("9110-7.1-special-forms");
    for (const target of ["*", "proxy.test:80"]) {
      const call = t.refusedOrOne(await t.ask(request("GET", target)), [400]);
      if (call) expect(call.target).toMatch(/^\//);
      await t.upstream.reset();
    }
  },

  async "RFC 9110 §10.1.1: an early response has Connection: close, or the rest of the request body is read"(
    t: Tools,
  ): Promise<void> {
    rfc("9110-10.1.1-close");
    t.upstream.script = (call) =>
      call.reply(call.target === "/early" ? 413 : 200, [["Connection", "close"]], "answer");
    const size = 100_000;
    const client = await t.connect();
    client.send(request("POST", "/early", [["Content-Length", String(size)]]), "x");
    const answer = client.read();
    // A proxy may wait for the whole request before it forwards the response.
    await Promise.race([answer.catch(() => {}), pause(1000)]);
    if (client.socket.bytesRead === 0) client.send("x".repeat(size - 1));
    const early = await answer;
    expect(early.status).toBe(413);
    if (early.get("connection")?.toLowerCase() === "close") return;
    if (client.socket.bytesWritten < size) client.send("x".repeat(size - 1));
    client.send(request("GET", "/next"));
    expect((await client.read()).status).toBe(200);
  },

  async "RFC 9112 §7.1.1: a chunk extension has a limit"(t: Tools): Promise<void> {
    rfc("9112-7.1.1-extension-limit");
    const client = await t.connect();
    client.send(request("POST", "/", [["Transfer-Encoding", "chunked"]]));
    client.send(`5;${"x".repeat(2 ** 20)}\r\nhello\r\n`, lastChunk);
    // Some servers close the connection instead of answering.
    const status = await client.read("POST").then(
      (answer) => answer.status,
      () => 400,
    );
    expect(status).toBeGreaterThanOrEqual(400);
    expect(t.upstream.calls.filter((call) => call.state === "complete")).toEqual([]);
  },

  async "RFC 9110 §9.3.2: the response to HEAD has the fields of the response to GET, with its Content-Length"(
    t: Tools,
  ): Promise<void> {
    rfc("9110-9.3.2-head-fields");
    const fields: Header[] = [
      ["Content-Length", "4"],
      ["Content-Type", "a/b"],
      ["ETag", '"x"'],
    ];
    t.upstream.script = (call) => call.reply(200, fields, call.method === "HEAD" ? null : "body");
    for (const method of ["GET", "HEAD"]) {
      const answer = await t.ask(request(method, "/"));
      for (const [name, value] of fields) expect(answer.all(name), method).toEqual([value]);
    }
  },

  async "RFC 9112 §7.1.1: a chunk extension is ignored"(t: Tools): Promise<void> {
    rfc("9112-7.1.1-extensions");
    t.upstream.script = async (call) => {
      await call.done;
      call.write("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n");
      call.write(`5;a=b;c="d"\r\n${call.text}\r\n0;e\r\n\r\n`);
    };
    const client = await t.connect();
    const head = request("POST", "/", [["Transfer-Encoding", "chunked"]]);
    client.send(head, '5;a=b;c="d"\r\nhello\r\n0;e\r\n\r\n');
    expect(await client.read("POST")).toMatchObject({ status: 200, text: "hello" });
  },

  async "RFC 9110 §6.5.1: a trailer field does not become a header field, or the request is refused"(
    t: Tools,
  ): Promise<void> {
    rfc("9110-6.5.1-trailers-merged", "9112-7.1.2-merge");
    t.upstream.script = async (call) => {
      await call.done;
      call.write("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n");
      call.write("2\r\nok\r\n0\r\nX-Trailer: b\r\nSet-Cookie: c=d\r\n\r\n");
    };
    const client = await t.connect();
    const head = request("POST", "/", [["Transfer-Encoding", "chunked"]]);
    client.send(head, "2\r\nhi\r\n0\r\nX-Trailer: b\r\nAuthorization: c\r\n\r\n");
    const answer = await client.read("POST");
    for (const name of ["x-trailer", "set-cookie"]) expect(answer.all(name)).toEqual([]);
    expect([200, 400]).toContain(answer.status);
    for (const call of t.upstream.calls) {
      // When a server reads the trailers, and refuses the request because of them, the proxy may already have sent a part
      // of it.
      if (answer.status === 400) expect(call.state).not.toBe("complete");
      for (const name of ["x-trailer", "authorization"]) expect(call.all(name)).toEqual([]);
    }
    // The server may have refused the request because of its trailers, so test the trailers of a response with another request.
    const next = await t.ask(request("GET", "/"));
    expect(next).toMatchObject({ status: 200, text: "ok" });
    for (const name of ["x-trailer", "set-cookie"]) expect(next.all(name)).toEqual([]);
  },

  async "RFC 9112 §3.2: a request line that is malformed is refused, not repaired"(
    t: Tools,
  ): Promise<void> {
    rfc("9112-3.2-invalid-line", "9112-3.2-autocorrect");
    for (const line of [
      "GET /a b HTTP/1.1",
      "GET / HTTP/1.1 x",
      "GET / HTTQ/1.1",
      "G@T / HTTP/1.1",
    ]) {
      const answer = await t.ask(`${line}\r\n${HOST}\r\n`);
      expect([400, 501, 505], line).toContain(answer.status);
      expect(t.upstream.calls, line).toEqual([]);
    }
  },

  async "RFC 9112 §3.2: no Host field, or two of them, get 400"(t: Tools): Promise<void> {
    rfc("9112-3.2-host-received");
    for (const fields of [
      "X-A: b",
      "Host: a.test\r\nHost: b.test",
      "Host: a.test\r\nhost: a.test",
    ]) {
      expect((await t.ask(`GET / HTTP/1.1\r\n${fields}\r\n\r\n`)).status, fields).toBe(400);
      expect(t.upstream.calls, fields).toEqual([]);
    }
  },

  async "RFC 9112 §3.2: a Host that is not an authority gets 400"(t: Tools): Promise<void> {
    rfc("9112-3.2-host-received", "9110-4.2.4-userinfo-received");
    for (const fields of [
      "Host: user@a.test",
      "Host: user:secret@a.test",
      "Host: a b",
      "Host: a.test/x",
      "Host: a.test:x",
    ]) {
      expect((await t.ask(`GET / HTTP/1.1\r\n${fields}\r\n\r\n`)).status, fields).toBe(400);
      expect(t.upstream.calls, fields).toEqual([]);
    }
  },

  async "RFC 9112 §3.2.2: a target in absolute form is accepted"(t: Tools): Promise<void> {
    rfc("9112-3.2.2-accepted");
    expect((await t.ask(request("GET", "http://proxy.test/x?y=1"))).status).toBe(200);
    expect(t.upstream.calls).toHaveLength(1);
  },

  async "RFC 9112 §3.2.1: of a target in absolute form, the upstream gets path and query alone"(
    t: Tools,
  ): Promise<void> {
    rfc("9112-3.2.1-origin-form");
    await t.ask(request("GET", "http://proxy.test/x?y=1"));
    expect(t.upstream.calls.map((call) => call.target)).toEqual(["/x?y=1"]);
  },
};
