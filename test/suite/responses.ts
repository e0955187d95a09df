/** Responses of each status and framing. After each of them, the client's connection must be usable. */
import { expect } from "vitest";
import { rfc } from "../conformance/rfc.ts";
import type { Tools } from "./_suite.ts";
import { until, within } from "../helpers/wait.ts";
import { chunk, request, type Header } from "../helpers/wire.ts";

/**
 * Sends two requests on one connection, and answers each with these bytes. A plain request follows each, and would fail if the
 * response had a byte too many or too few.
 */
async function expectInStep(
  t: Tools,
  bytes: string,
  expected: object,
  options: { method?: string; headers?: Header[] } = {},
): Promise<void> {
  const { method = "GET", headers = [] } = options;
  t.upstream.script = (call) =>
    call.target === "/" ? call.write(bytes) : call.reply(200, [], "in step");
  const client = await t.connect();
  for (let count = 0; count < 2; count++) {
    client.send(request(method, "/"));
    const answer = await client.read(method);
    expect(answer).toMatchObject({ cut: false, ...expected });
    for (const [name, value] of headers) expect(answer.all(name), name).toEqual([value]);
    client.send(request("GET", "/after"));
    expect(await client.read()).toMatchObject({ status: 200, text: "in step" });
  }
}

export const responses = {
  async "the response to HEAD keeps Content-Length and has no body"(t: Tools): Promise<void> {
    const headers: Header[] = [
      ["Content-Length", "1234"],
      ["Content-Type", "text/plain"],
    ];
    const head = "HTTP/1.1 200 OK\r\nContent-Length: 1234\r\nContent-Type: text/plain\r\n\r\n";
    await expectInStep(t, head, { status: 200, length: 0 }, { method: "HEAD", headers });
    expect(t.upstream.calls[0]?.method).toBe("HEAD");
  },

  async "the response to HEAD of a chunked resource has no body"(t: Tools): Promise<void> {
    rfc("9110-6-request-known", "9110-9.1-get-head", "9110-9.3.2-head");
    const head = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
    await expectInStep(t, head, { status: 200, length: 0 }, { method: "HEAD" });
  },

  async "the response to HEAD has no Content-Length that the upstream has not sent"(
    t: Tools,
  ): Promise<void> {
    rfc("9110-8.6-head");
    for (const fields of ["Content-Type: text/plain\r\n", "Transfer-Encoding: chunked\r\n", ""]) {
      t.upstream.script = (call) => call.write(`HTTP/1.1 200 OK\r\n${fields}\r\n`);
      const client = await t.connect();
      client.send(request("HEAD", "/"));
      const answer = await client.read("HEAD");
      expect(answer).toMatchObject({ status: 200, length: 0 });
      expect(answer.get("content-length"), fields).toBeUndefined();
      client.leave("FIN");
    }
  },

  async "a HEAD that onRequest changes into GET gets no body, and leaves no upstream connection in use"(
    t: Tools,
  ): Promise<void> {
    const size = 1_000_000;
    t.upstream.script = (call) => {
      if (call.target !== "/as/GET") return call.reply(200, [], "in step");
      call.write(`HTTP/1.1 200 OK\r\nContent-Length: ${size}\r\n\r\n`, Buffer.alloc(size / 2));
    };
    const client = await t.connect("hooked");
    for (let count = 0; count < 3; count++) {
      client.send(request("HEAD", "/as/GET"));
      const answer = await client.read("HEAD");
      expect(answer).toMatchObject({ status: 200, length: 0, cut: false });
      expect(answer.get("content-length")).toBe(String(size));
      client.send(request("GET", "/after"));
      expect(await client.read()).toMatchObject({ status: 200, text: "in step" });
    }
    const calls = t.upstream.calls.filter(({ target }) => target === "/as/GET");
    expect(calls.map(({ method }) => method)).toEqual(["GET", "GET", "GET"]);
    const closed = Promise.all(calls.map(({ link }) => link.closed));
    await within(closed, "the upstream's connections closed");
  },

  async "a GET that onRequest changes into HEAD gets an empty body, and the connection stays usable"(
    t: Tools,
  ): Promise<void> {
    t.upstream.script = (call) =>
      call.method === "HEAD"
        ? call.write("HTTP/1.1 200 OK\r\nContent-Length: 1234\r\nX-A: b\r\n\r\n")
        : call.reply(200, [], "in step");
    const client = await t.connect("hooked");
    for (let count = 0; count < 2; count++) {
      client.send(request("GET", "/as/HEAD"));
      const answer = await client.read();
      expect(answer).toMatchObject({ status: 200, length: 0, cut: false });
      expect(answer.get("x-a")).toBe("b");
      client.send(request("GET", "/after"));
      expect(await client.read()).toMatchObject({ status: 200, text: "in step" });
    }
  },

  async "a 204 response has no body and no framing"(t: Tools): Promise<void> {
    const headers: Header[] = [["X-A", "b"]];
    await expectInStep(
      t,
      "HTTP/1.1 204 No Content\r\nX-A: b\r\n\r\n",
      { status: 204, length: 0 },
      { headers },
    );
  },

  async "a 204 response with Content-Length does not disturb the next response"(
    t: Tools,
  ): Promise<void> {
    // RFC 9110 §8.6 forbids Content-Length in a 204, but some servers send it.
    await expectInStep(t, "HTTP/1.1 204 No Content\r\nContent-Length: 0\r\n\r\n", {
      status: 204,
      length: 0,
    });
  },

  async "a 205 response has no body"(t: Tools): Promise<void> {
    rfc("9110-15.3.6-205");
    const bytes = "HTTP/1.1 205 Reset Content\r\nContent-Length: 0\r\n\r\n";
    await expectInStep(t, bytes, { status: 205, length: 0 });
  },

  async "RFC 9110 §8.6: a 304 response has no other Content-Length than the 200"(
    t: Tools,
  ): Promise<void> {
    rfc("9110-8.6-304");
    t.upstream.script = (call) =>
      call.write('HTTP/1.1 304 Not Modified\r\nETag: "x"\r\nContent-Length: 1234\r\n\r\n');
    const answer = await t.ask(request("GET", "/", [["If-None-Match", '"x"']]));
    expect(answer).toMatchObject({ status: 304, length: 0 });
    expect([[], ["1234"]]).toContainEqual(answer.all("content-length"));
  },

  async "a 304 response has no body and keeps its validators"(t: Tools): Promise<void> {
    rfc("9110-15.4.5-forward");
    const bytes =
      'HTTP/1.1 304 Not Modified\r\nETag: "x"\r\nContent-Length: 1234\r\nCache-Control: no-cache\r\n\r\n';
    const headers: Header[] = [
      ["ETag", '"x"'],
      ["Cache-Control", "no-cache"],
    ];
    await expectInStep(t, bytes, { status: 304, length: 0 }, { headers });
    await t.ask(request("GET", "/", [["If-None-Match", '"x"']]));
    expect(t.upstream.calls.at(-1)?.get("if-none-match")).toBe('"x"');
  },

  async "a 304 response without Content-Length has no body"(t: Tools): Promise<void> {
    await expectInStep(t, 'HTTP/1.1 304 Not Modified\r\nETag: "x"\r\n\r\n', {
      status: 304,
      length: 0,
    });
  },

  async "a response with any common status passes with its body"(t: Tools): Promise<void> {
    for (const status of [
      200, 201, 202, 203, 207, 226, 300, 301, 302, 303, 307, 308, 400, 401, 403, 404, 405, 406, 407,
      409, 410, 413, 417, 418, 421, 429, 451, 499, 500, 501, 502, 503, 504, 511, 599,
    ]) {
      t.upstream.script = (call) => call.reply(status, [["Location", "/there"]], `body ${status}`);
      const answer = await t.ask(request("GET", "/"));
      expect(answer, `${status}`).toMatchObject({ status, text: `body ${status}` });
    }
  },

  async "a response body of known length keeps Content-Length"(t: Tools): Promise<void> {
    rfc("9112-6.3-delimited");
    const bytes = "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello";
    await expectInStep(t, bytes, { text: "hello" }, { headers: [["Content-Length", "5"]] });
  },

  async "an empty response body keeps content-length: 0"(t: Tools): Promise<void> {
    const bytes = "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n";
    await expectInStep(t, bytes, { text: "" }, { headers: [["Content-Length", "0"]] });
  },

  async "a chunked response with extensions and trailers arrives completely"(
    t: Tools,
  ): Promise<void> {
    rfc("9112-7.1-chunked");
    const bytes =
      "HTTP/1.1 200 OK\r\nTrailer: X-Sum\r\nTransfer-Encoding: chunked\r\n\r\n5;a=b\r\nhello\r\n1\r\n!\r\n0\r\nX-Sum: 1\r\n\r\n";
    await expectInStep(t, bytes, { text: "hello!" });
  },

  async "an upstream connection is kept after a response to HEAD, after one with Content-Length, and after a chunked one"(
    t: Tools,
  ): Promise<void> {
    const head = "HTTP/1.1 200 OK\r\nContent-Length: 1234\r\n\r\n";
    await expectInStep(t, head, { status: 200, length: 0 }, { method: "HEAD" });
    const sized = "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello";
    await expectInStep(t, sized, { text: "hello" });
    const chunked = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
    await expectInStep(t, `${chunked}5;a=b\r\nhello\r\n0\r\nX-Sum: 1\r\n\r\n`, { text: "hello" });
    const links = new Set(t.upstream.calls.map(({ link }) => link));
    expect([t.upstream.calls.length, links.size]).toEqual([12, 1]);
  },

  async "a response body that ends with the upstream's connection ends cleanly for the client"(
    t: Tools,
  ): Promise<void> {
    t.upstream.script = (call) => {
      call.write("HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n\r\nuntil ");
      call.write("the end");
      call.close();
    };
    const client = await t.connect();
    for (let count = 0; count < 2; count++) {
      client.send(request("GET", "/"));
      expect(await client.read()).toMatchObject({ status: 200, text: "until the end", cut: false });
    }
  },

  async "responses of an HTTP/1.0 upstream are forwarded"(t: Tools): Promise<void> {
    rfc("9112-2.3-own-version");
    t.upstream.script = (call) => {
      call.write("HTTP/1.0 200 OK\r\nX-A: b\r\n\r\nold");
      call.close();
    };
    expect(await t.ask(request("GET", "/"))).toMatchObject({
      version: "1.1",
      status: 200,
      text: "old",
    });
    t.upstream.script = (call) => {
      call.write("HTTP/1.0 200 OK\r\nContent-Length: 3\r\n\r\nold");
      call.close();
    };
    expect(await t.ask(request("GET", "/"))).toMatchObject({
      version: "1.1",
      status: 200,
      text: "old",
    });
  },

  async "102 and 103 responses before the final one do not disturb it"(t: Tools): Promise<void> {
    rfc("9110-15.2-parse");
    const bytes =
      "HTTP/1.1 102 Processing\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: </a.css>; rel=preload\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nfinal";
    await expectInStep(t, bytes, { status: 200, text: "final" });
  },

  async "an unsolicited 100 before the final response is ignored"(t: Tools): Promise<void> {
    rfc("9110-15.2-parse");
    // RFC 9110 §15.2: a client must accept interim responses that it did not ask for.
    const bytes = "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nfinal";
    await expectInStep(t, bytes, { status: 200, text: "final" });
  },

  async "an interim response long before the final one does not disturb it"(
    t: Tools,
  ): Promise<void> {
    t.upstream.script = (call) => call.write("HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n");
    const client = await t.connect();
    client.send(request("GET", "/"));
    const answer = client.read();
    const call = await t.upstream.call();
    await until(() => call.link.socket.bytesWritten > 0, "the interim response");
    expect((await t.ask(request("GET", "/meanwhile"), "refused")).status).toBe(502);
    call.reply(200, [], "final");
    expect(await answer).toMatchObject({ status: 200, text: "final" });
  },

  async "a response is forwarded chunk by chunk, each before the next one is sent"(
    t: Tools,
  ): Promise<void> {
    t.upstream.script = (call) =>
      call.write(
        "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n",
        chunk("data: 0\n\n"),
      );
    const client = await t.connect();
    client.send(request("GET", "/"));
    const pieces = client.pieces(await client.readHead());
    const call = await t.upstream.call();
    for (let count = 0; count < 3; count++) {
      const { done, value } = await within(pieces.next(), `event ${count}`);
      expect(done ? "" : value.toString("latin1")).toBe(`data: ${count}\n\n`);
      call.write(chunk(`data: ${count + 1}\n\n`));
    }
  },

  async "a 3xx response passes through with its Location"(t: Tools): Promise<void> {
    for (const location of [
      "/there",
      "https://elsewhere.test/x?y#z",
      "//x",
      "not a url at all",
      "",
    ]) {
      t.upstream.script = (call) => call.reply("302 Found", [["Location", location]], "moved");
      const answer = await t.ask(request("GET", "/"));
      expect(answer).toMatchObject({ status: 302, text: "moved" });
      expect(answer.all("location")).toEqual([location]);
    }
    expect(t.upstream.calls).toHaveLength(5);
  },
};
