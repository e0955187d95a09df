/** Connections that break before a response: which requests are sent again, and which never are. */
import { expect } from "vitest";
import { rfc } from "../conformance/rfc.ts";
import type { Tools } from "./_suite.ts";
import type { Call } from "../helpers/link.ts";
import { until } from "../helpers/wait.ts";
import { chunk, type Header, lastChunk, request } from "../helpers/wire.ts";

/** The ways in which an upstream closes a kept connection when the next request arrives on it. */
const closings: ((call: Call) => void)[] = [(call) => call.close(), (call) => call.reset()];

/** Answers the first request on each connection, and closes the connection when another request arrives on it. */
function closesWhenReused(t: Tools, close: (call: Call) => void): void {
  t.upstream.script = async (call) => {
    await call.done;
    if (call.link.calls.length > 1) close(call);
    else call.reply(200, [["X-Id", call.get("x-id") ?? ""]], call.body);
  };
}

export const retries = {
  async "an idempotent request is sent again when its reused connection turns out to be closed"(
    t: Tools,
  ): Promise<void> {
    for (const close of closings) {
      closesWhenReused(t, close);
      const client = await t.connect();
      for (let id = 0; id < 40; id++) {
        const method = ["GET", "HEAD", "DELETE", "OPTIONS"][id % 4] as string;
        client.send(request(method, "/", [["X-Id", String(id)]]));
        const answer = await client.read(method);
        expect(answer.status, `${method} ${id}`).toBe(200);
        expect(answer.get("x-id")).toBe(String(id));
      }
    }
    // Without a reused connection, the test would have tested nothing.
    expect(t.upstream.links.some(({ calls }) => calls.length > 1)).toBe(true);
  },

  async "a POST on a reused connection that turns out to be closed reaches the upstream at most once"(
    t: Tools,
  ): Promise<void> {
    rfc("9110-9.2.2-proxy-retry", "9110-9.2.2-client-retry");
    for (const close of closings) {
      closesWhenReused(t, close);
      for (let id = 0; id < 40; id++) {
        const body = ["", "a body"][id % 2];
        const fields: Header[] = [["X-Id", `${String(close)} ${id}`.replaceAll(/\s/g, "")]];
        const answer = await t.ask(request("POST", "/", fields, body));
        if (answer.status !== 200 && !t.mayRefuse(answer)) t.expectGatewayError(answer, 502);
      }
    }
    const ids = t.upstream.calls.map((call) => call.get("x-id"));
    expect(ids.length).toBeGreaterThanOrEqual(80);
    expect(new Set(ids).size).toBe(ids.length);
  },

  async "a PUT whose body is kept is sent again byte for byte"(t: Tools): Promise<void> {
    closesWhenReused(t, (call) => call.reset());
    const body = "0123456789".repeat(90);
    for (let id = 0; id < 20; id++) {
      const head: [string, string][] = [["Transfer-Encoding", "chunked"]];
      const bytes =
        id % 2
          ? request("PUT", "/", [], body)
          : Buffer.concat([request("PUT", "/", head), chunk(body), lastChunk]);
      // Use a new connection for each request, because Deno.serve closes the connection after this body.
      expect(await t.ask(bytes, "retrying")).toMatchObject({ status: 200, text: body });
    }
  },

  async "a QUERY whose body is kept is sent again byte for byte, and mirrored with its body"(
    t: Tools,
  ): Promise<void> {
    closesWhenReused(t, (call) => call.reset());
    for (let id = 0; id < 8; id++) {
      const answer = await t.ask(request("QUERY", "/", [], `select ${id}`), "retrying");
      expect(answer).toMatchObject({ status: 200, text: `select ${id}` });
    }
    await t.upstream.reset();
    await t.ask(request("QUERY", "/mirrored", [], "select 9"), "mirrored");
    await until(() => t.upstream.calls.length === 2, "the copy");
    await Promise.all(t.upstream.calls.map(({ done }) => done));
    expect(t.upstream.calls.map(({ method, text }) => `${method} ${text}`)).toEqual([
      "QUERY select 9",
      "QUERY select 9",
    ]);
  },

  async "a request is never sent again once its response has begun"(t: Tools): Promise<void> {
    t.upstream.script = (call) => {
      if (call.target === "/first") return call.reply(200, [], "ok");
      call.write("HTTP/1.1 200 OK\r\nContent-Le");
      call.close();
    };
    const client = await t.connect();
    client.send(request("GET", "/first"));
    await client.read();
    client.send(request("GET", "/second"));
    expect((await client.read()).status).toBe(502);
    expect(t.upstream.calls.filter(({ target }) => target === "/second")).toHaveLength(1);
  },

  async "a GET whose response has a status that `retry` names is sent again, as often as `retry` allows"(
    t: Tools,
  ): Promise<void> {
    let busy = 2;
    t.upstream.script = (call) =>
      busy-- > 0 ? call.reply(503, [], "busy") : call.reply(200, [], "ok");
    expect(await t.ask(request("GET", "/"), "retrying")).toMatchObject({ status: 200, text: "ok" });
    busy = 9;
    expect(await t.ask(request("GET", "/"), "retrying")).toMatchObject({
      status: 503,
      text: "busy",
    });
    expect(t.upstream.calls).toHaveLength(6);
    busy = 9;
    const post = await t.ask(request("POST", "/", [], "body"), "retrying");
    expect(post).toMatchObject({ status: 503, text: "busy" });
    expect(t.upstream.calls).toHaveLength(7);
  },
};
