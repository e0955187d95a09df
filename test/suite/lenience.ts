/** Messages that are not valid HTTP/1.1, but that the parser of a server or of an HTTP client may accept. */
import { expect } from "vitest";
import { advisory } from "../conformance/advisory.ts";
import { rfc } from "../conformance/rfc.ts";
import type { Tools } from "./_suite.ts";
import { within } from "../helpers/wait.ts";
import { request } from "../helpers/wire.ts";

/** The hosts on Node's server, except `fetch-node`. Their requests show the HTTP version that the request line has named. */
const ON_NODE = /^(?:node|slow|srvx|h3|hono|undici.*)$/;

const HOST = "Host: proxy.test\r\n";

export const lenience = {
  async "RFC 9110 §15.6.6: a request with an unsupported HTTP version is refused, with 505 where the server shows the version"(
    t: Tools,
  ): Promise<void> {
    for (const head of [
      `GET /x HTTP/2.0\r\n${HOST}`,
      `GET /x HTTP/0.9\r\n${HOST}`,
      `GET /HTTP/1.1\r\n${HOST}`,
      "GET /x\r\n",
      `POST /x HTTP/2.0\r\n${HOST}Content-Length: 0\r\n`,
    ]) {
      for (const setup of ["default", "routed", "witnessed"] as const) {
        const answer = await t.ask(`${head}\r\n`, setup);
        expect([400, 505], head).toContain(answer.status);
        expect(t.upstream.calls, head).toEqual([]);
        if (!ON_NODE.test(t.host.name)) continue;
        expect(answer.status, head).toBe(505);
        expect(answer.get("proxy-status")).toBe("fetchway; error=http_request_error");
      }
    }
    for (const head of [`GET /x HTTP/1.2\r\n${HOST}`, `GET /x HTTP/3.0\r\n${HOST}`]) {
      expect([400, 505], head).toContain((await t.ask(`${head}\r\n`)).status);
      expect(t.upstream.calls, head).toEqual([]);
    }
  },

  async "an HTTP/1.0 client gets no 100 (Continue)"(t: Tools): Promise<void> {
    rfc("9110-10.1.1-ignored", "9110-15.2-http10");
    const fields = `${HOST}Expect: 100-continue\r\nContent-Length: 2\r\n`;
    const answer = await t.ask(`POST / HTTP/1.0\r\n${fields}\r\nhi`);
    expect(answer).toMatchObject({ status: 200, text: "hi" });
    expect(answer.interim).toEqual([]);
  },

  async "an HTTP/1.0 request without Host is forwarded"(t: Tools): Promise<void> {
    expect((await t.ask("GET / HTTP/1.0\r\n\r\n")).status).toBe(200);
    expect(t.upstream.calls[0]?.all("host")).toEqual([t.upstream.authority]);
  },

  async "RFC 9112 §6.1: an HTTP/1.0 request with Transfer-Encoding is refused, or its connection is closed after it"(
    t: Tools,
  ): Promise<void> {
    rfc("9112-6.1-http10-request");
    advisory("CVE-2026-2835");
    const second = request("GET", "/second");
    for (const length of [
      "",
      "Content-Length: 0\r\n",
      `Content-Length: ${5 + second.length}\r\n`,
    ]) {
      const client = await t.connect();
      const fields = `${HOST}Connection: keep-alive\r\n${length}Transfer-Encoding: chunked\r\n`;
      client.send(`POST / HTTP/1.0\r\n${fields}\r\n0\r\n\r\n`, second);
      await client.read("POST").catch(() => {});
      await within(client.rest(), "the connection's end");
      expect(t.upstream.calls.map((call) => call.target)).not.toContain("/second");
    }
  },

  async "RFC 9112 §2.2: a request head with a bare LF as a line end is refused"(
    t: Tools,
  ): Promise<void> {
    for (const head of [
      "GET / HTTP/1.1\nHost: proxy.test\n\n",
      "GET / HTTP/1.1\r\nHost: proxy.test\n\r\n",
      "GET / HTTP/1.1\r\nHost: proxy.test\r\n\n",
    ]) {
      expect([400, 505], JSON.stringify(head)).toContain((await t.ask(head)).status);
    }
    expect(t.upstream.calls).toEqual([]);
  },

  async "RFC 9112 §2.2: a response head with a bare LF as a line end becomes 502"(
    t: Tools,
  ): Promise<void> {
    for (const head of [
      "HTTP/1.1 200 OK\nContent-Length: 2\n\n",
      "HTTP/1.1 200 OK\r\nContent-Length: 2\n\r\n",
      "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\n",
    ]) {
      t.upstream.script = (call) => {
        call.write(`${head}hi`);
        call.close();
      };
      expect((await t.ask(request("GET", "/"))).status, JSON.stringify(head)).toBe(502);
    }
  },

  async "a CONNECT request is answered with 405"(t: Tools): Promise<void> {
    const client = await t.connect();
    client.send("CONNECT evil.test:80 HTTP/1.1\r\nHost: evil.test:80\r\n\r\n");
    const response = await client.read();
    expect(response.status).toBe(405);
    expect(response.get("allow")).toContain("GET");
    expect(t.upstream.calls).toEqual([]);
  },

  async "a connection is kept after a request whose body with Content-Length arrived after its head"(
    t: Tools,
  ): Promise<void> {
    const client = await t.connect();
    client.send(request("POST", "/first", [["Content-Length", "2"]]));
    await t.upstream.call(0);
    client.send("hi");
    expect(await client.read("POST")).toMatchObject({ status: 200, text: "hi" });
    client.send(request("GET", "/second"));
    expect((await client.read()).status).toBe(200);
  },
};
