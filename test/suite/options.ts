/** Hooks that change requests and responses, and the option `bodyLimit`. */
import { expect } from "vitest";
import { mebibyte, pour } from "../helpers/large.ts";
import type { Tools } from "./_suite.ts";
import { until, within } from "../helpers/wait.ts";
import { chunk, lastChunk, request } from "../helpers/wire.ts";

/** The setups in which bodies are not merely passed on: `bodyLimit` counts their bytes, or a hook may read them. */
const looking = ["limited", "hooked"] as const;

export const options = {
  async "onRequest changes the upstream request, and onResponse the response"(
    t: Tools,
  ): Promise<void> {
    const answer = await t.ask(request("POST", "/", [["X-Id", "1"]], "body"), "hooked");
    expect(answer).toMatchObject({ status: 200, text: "body" });
    expect(answer.get("x-hooked")).toBe("response");
    expect(answer.get("x-id")).toBe("1");
    expect(t.upstream.calls[0]?.get("x-hooked")).toBe("request");
    expect(t.upstream.calls[0]?.text).toBe("body");
  },

  async "onError replaces the gateway's error response"(t: Tools): Promise<void> {
    t.upstream.script = (call) => call.reset();
    const answer = await t.ask(request("GET", "/"), "hooked");
    expect(answer).toMatchObject({ status: 503, text: "sorry: connection_terminated" });
  },

  async "bodyLimit: a body of exactly the limit passes, with Content-Length or chunked"(
    t: Tools,
  ): Promise<void> {
    const body = "x".repeat(1000);
    expect(await t.ask(request("POST", "/", [], body), "limited")).toMatchObject({ text: body });
    const client = await t.connect("limited");
    client.send(request("POST", "/", [["Transfer-Encoding", "chunked"]]), chunk(body), lastChunk);
    expect(await client.read()).toMatchObject({ status: 200, text: body });
  },

  async "bodyLimit: a request with a Content-Length over the limit is answered with 413, and not sent"(
    t: Tools,
  ): Promise<void> {
    const answer = await t.ask(request("POST", "/", [], "x".repeat(1001)), "limited");
    expect(answer.status).toBe(413);
    expect(answer.get("proxy-status")).toMatch(/^fetchway; error=http_request_error/);
    // The proxy must not have opened an upstream connection.
    expect(t.upstream.links).toEqual([]);
  },

  async "bodyLimit: a Content-Length over the limit is refused before the client sends the body"(
    t: Tools,
  ): Promise<void> {
    const client = await t.connect("limited");
    client.send(request("POST", "/", [["Content-Length", "1000000000000"]]));
    expect((await client.read()).status).toBe(413);
    expect(t.upstream.links).toEqual([]);
  },

  async "bodyLimit: a chunked body over the limit is answered with 413, and never looks complete to the upstream"(
    t: Tools,
  ): Promise<void> {
    for (const pieces of [[1001], [600, 600], [1000, 1]]) {
      const client = await t.connect("limited");
      client.send(request("POST", "/", [["Transfer-Encoding", "chunked"]]));
      for (const size of pieces) client.send(chunk("x".repeat(size)));
      client.send(lastChunk);
      expect((await client.read()).status, pieces.join("+")).toBe(413);
    }
    const { calls, links } = t.upstream;
    await until(() => calls.every((call) => call.state !== "reading"), "broken off");
    expect(calls.filter((call) => call.state === "complete")).toEqual([]);
    for (const { link } of calls) await within(link.closed, "the upstream's connection");
    expect((await t.ask(request("GET", "/after"), "limited")).status).toBe(200);
    expect(links.filter((link) => link.calls.length > 1)).toEqual([]);
  },

  async "bodyLimit: an upload over the limit is stopped although the client keeps sending"(
    t: Tools,
  ): Promise<void> {
    const client = await t.connect("limited");
    client.send(request("POST", "/", [["Transfer-Encoding", "chunked"]]), chunk("first"));
    const call = await t.upstream.call();
    await until(() => call.length > 0, "the first piece");
    void pour(client.socket, 64 * mebibyte, { chunked: true });
    // A server may close the connection of a client that continues to send (RFC 9110 §15.5.14). The answer may then be
    // lost.
    expect(
      await client.readHead().then(
        ({ status }) => status,
        () => 413,
      ),
    ).toBe(413);
    await within(call.link.closed, "the upstream's connection closed");
    expect(call.state).toBe("cut");
    expect(call.length).toBeLessThanOrEqual(1000);
  },

  async "with bodyLimit or hooks, an upload and its response stream at the same time"(
    t: Tools,
  ): Promise<void> {
    for (const setup of looking) {
      const client = await t.connect(setup);
      client.send(request("POST", "/", [["Transfer-Encoding", "chunked"]]), chunk("first "));
      const call = await t.upstream.call();
      await until(() => call.length === 6, `${setup}: the first piece`);
      client.send(chunk("second"), lastChunk);
      expect(await client.read()).toMatchObject({ status: 200, text: "first second" });
      await t.upstream.reset();
    }
  },

  async "with bodyLimit or hooks, an early response to an upload does not disturb the next request"(
    t: Tools,
  ): Promise<void> {
    for (const setup of looking) {
      t.upstream.script = (call) => call.reply(401, [], "early");
      const client = await t.connect(setup);
      client.send(request("POST", "/", [["Transfer-Encoding", "chunked"]]), chunk("first "));
      expect(await client.read()).toMatchObject({ status: 401, text: "early" });
      client.send(chunk("second"), lastChunk);
      await t.upstream.reset();
      expect((await t.ask(request("GET", "/after"), setup)).status).toBe(200);
      await t.upstream.reset();
    }
  },

  async "with bodyLimit or hooks, an interrupted upload never looks complete to the upstream"(
    t: Tools,
  ): Promise<void> {
    for (const setup of looking) {
      for (const how of ["FIN", "RST"] as const) {
        const client = await t.connect(setup);
        client.send(request("POST", "/", [["Transfer-Encoding", "chunked"]]), chunk("half"));
        const call = await t.upstream.call();
        await until(() => call.length === 4, `${setup}: half the body`);
        client.leave(how);
        await within(call.link.closed, `${setup}: the upstream's connection closed`, 8000);
        expect(call.state, setup).toBe("cut");
        await t.upstream.reset();
      }
      expect((await t.ask(request("GET", "/after"), setup)).status).toBe(200);
      await t.upstream.reset();
    }
  },

  async "the client's connection is still usable after an error response of the proxy itself"(
    t: Tools,
  ): Promise<void> {
    const client = await t.connect("refused");
    for (let count = 0; count < 3; count++) {
      client.send(request("POST", "/", [], "a body that nobody takes"));
      expect((await client.read()).status).toBe(502);
      client.send(request("HEAD", "/"));
      expect(await client.read("HEAD")).toMatchObject({ status: 502, length: 0 });
    }
  },
};
