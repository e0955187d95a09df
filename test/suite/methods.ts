/** Methods and request targets that browsers do not send. */
import { expect } from "vitest";
import { rfc } from "../conformance/rfc.ts";
import type { Tools } from "./_suite.ts";
import { type Header, request } from "../helpers/wire.ts";

/** The methods of WebDAV and its extensions (RFC 4918, 3253, 3648, 3744, 4791, 5323, 5842), and QUERY. */
const WEBDAV = (
  "ACL BIND CHECKOUT COPY LOCK MERGE MKACTIVITY MKCALENDAR MKCOL MOVE PROPFIND PROPPATCH " +
  "REBIND REPORT SEARCH UNBIND UNLOCK QUERY"
).split(" ");

/** The request line and the body of each request that the upstream has seen. */
const seen = (t: Tools): string[] =>
  t.upstream.calls.map(({ method, target, text }) => `${method} ${target} ${text}`);

export const methods = {
  async "the methods of WebDAV, and QUERY, pass with their bodies"(t: Tools): Promise<void> {
    for (const method of WEBDAV) {
      const answer = await t.ask(request(method, "/dav/x?y=1", [["Depth", "1"]], "<a/>"));
      expect(answer, method).toMatchObject({ status: 200, text: "<a/>" });
    }
    expect(seen(t)).toEqual(WEBDAV.map((method) => `${method} /dav/x?y=1 <a/>`));
    expect(t.upstream.calls.map((call) => call.get("depth"))).toEqual(WEBDAV.map(() => "1"));
  },

  async "OPTIONS * reaches the upstream as OPTIONS *"(t: Tools): Promise<void> {
    rfc("9112-3.2.4-asterisk-sent");
    const answer = await t.ask(request("OPTIONS", "*", [["Max-Forwards", "7"]]));
    expect(answer.status).toBe(200);
    expect(seen(t)).toEqual(["OPTIONS * "]);
    expect(t.upstream.calls[0]?.get("host")).toBe(t.upstream.authority);
  },

  async "OPTIONS * becomes OPTIONS of the target's base path if there is one"(
    t: Tools,
  ): Promise<void> {
    expect((await t.ask(request("OPTIONS", "*"), "base")).status).toBe(200);
    expect(seen(t)).toEqual(["OPTIONS /base?k=v "]);
  },

  async "the path of OPTIONS * is not rewritten, and hooks see the request"(
    t: Tools,
  ): Promise<void> {
    expect((await t.ask(request("OPTIONS", "*"), "hooked")).status).toBe(200);
    expect(seen(t)).toEqual(["OPTIONS * "]);
    expect(t.upstream.calls[0]?.get("x-hooked")).toBe("request");
    expect((await t.ask(request("OPTIONS", "*"), "rewritten")).status).toBe(200);
    expect(seen(t)[1]).toBe("OPTIONS /v2 ");
  },

  async "RFC 9112 §3.2.4: OPTIONS with a URL without a path reaches the upstream as OPTIONS *"(
    t: Tools,
  ): Promise<void> {
    rfc("9112-3.2.4-asterisk-proxy");
    expect((await t.ask(request("OPTIONS", "http://proxy.test"))).status).toBe(200);
    expect((await t.ask(request("OPTIONS", "http://proxy.test/"))).status).toBe(200);
    expect(seen(t)).toEqual(["OPTIONS * ", "OPTIONS / "]);
  },

  async "a path that begins with /* is forwarded as a path"(t: Tools): Promise<void> {
    expect((await t.ask(request("OPTIONS", "/*"))).status).toBe(200);
    expect((await t.ask(request("GET", "/*?x"))).status).toBe(200);
    expect(seen(t)).toEqual(["OPTIONS /* ", "GET /*?x "]);
  },

  async "by default, TRACE is answered with 405, also at Max-Forwards 0"(t: Tools): Promise<void> {
    for (const fields of [[], [["Max-Forwards", "0"]]] as Header[][]) {
      const answer = await t.ask(request("TRACE", "/", fields));
      expect(answer.status).toBe(405);
      expect(answer.get("allow")).toMatch(/GET/);
      expect(answer.get("allow")).not.toMatch(/TRACE/);
    }
    expect(t.upstream.calls).toEqual([]);
  },

  async "with trace: true, TRACE reaches the upstream without content and without secrets"(
    t: Tools,
  ): Promise<void> {
    rfc("9110-9.3.8-sensitive");
    const fields: Header[] = [
      ["X-Kept", "yes"],
      ["Cookie", "a=secret"],
      ["Authorization", "Basic secret"],
    ];
    expect((await t.ask(request("TRACE", "/x?y", fields), "tracing")).status).toBe(200);
    const [call] = t.upstream.calls;
    expect(call?.target).toBe("/base/x?y");
    expect(call?.get("x-kept")).toBe("yes");
    expect(JSON.stringify(call?.headers)).not.toMatch(/secret|operator|forwarded/i);
    await t.upstream.reset();
    const client = await t.connect("tracing");
    client.send(request("TRACE", "/z", [], "content"));
    expect([200, 400]).toContain((await client.read()).status);
    expect(t.upstream.calls.every(({ length }) => length === 0)).toBe(true);
    client.leave("FIN");
  },

  async "CONNECT never reaches the upstream, and the next request is served"(
    t: Tools,
  ): Promise<void> {
    const client = await t.connect();
    client.send("CONNECT evil.test:80 HTTP/1.1\r\nHost: evil.test:80\r\nContent-Length: 0\r\n\r\n");
    const answer = await client.read().catch(() => undefined);
    if (answer?.status === 405) expect(answer.get("allow")).toContain("GET");
    expect(t.upstream.calls).toEqual([]);
    expect((await t.ask(request("GET", "/"))).status).toBe(200);
  },
};
