/** Hooks that fail: an answer for the client, told to `onError`, and nothing left of the exchange. */
import { expect } from "vitest";
import type { Answer } from "../_client.ts";
import type { SetupName } from "../_setups.ts";
import type { Tools } from "../_suite.ts";
import { within } from "../_wait.ts";
import { chunk, request } from "../_wire.ts";

const before = ["target", "clientAddress", "pathRewrite", "onRequest"];

/** The ways in which a hook can fail; those that must answer at once cannot do it later. */
function waysOf(hook: string): string[] {
  return hook === "clientAddress" ? ["throws"] : ["throws", "rejects"];
}

function expectNoSecret(answer: Answer): void {
  expect(answer.bytes.toString("latin1") + answer.text).not.toMatch(/10\.0\.0\.1|secret/);
}

/** With a body first: the client's connection must be in step after it. */
async function askTwice(t: Tools, path: string, setup: SetupName): Promise<Answer> {
  const client = await t.connect(setup);
  client.send(request("POST", path, [], "a body that nobody takes"));
  await client.read();
  client.send(request("GET", path));
  return client.read();
}

export const hooks = {
  async "a hook that fails before anything is sent gives 500 through onError"(
    t: Tools,
  ): Promise<void> {
    for (const hook of before) {
      for (const way of waysOf(hook)) {
        const path = `/${hook}/${way}`;
        const answer = await askTwice(t, path, "throwing");
        expect(answer, path).toMatchObject({ status: 500, text: "told: proxy_internal_error" });
        expectNoSecret(answer);
      }
    }
    expect(t.upstream.calls).toEqual([]);
    expect(await t.ask(request("GET", "/fine"), "throwing")).toMatchObject({ status: 200 });
  },

  async "an onResponse that fails gives 500 through onError, and lets go of the upstream"(
    t: Tools,
  ): Promise<void> {
    t.upstream.script = (call) =>
      call.write("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", chunk("half"));
    for (const way of waysOf("onResponse")) {
      const answer = await t.ask(request("GET", `/onResponse/${way}`), "throwing");
      expect(answer, way).toMatchObject({ status: 500, text: "told: proxy_internal_error" });
      expectNoSecret(answer);
      const { link } = t.upstream.calls.at(-1) ?? (await t.upstream.call());
      await within(link.closed, `${way}: the upstream's connection closed`, 1500);
    }
  },

  async "an onError that fails leaves the gateway's own answer"(t: Tools): Promise<void> {
    t.upstream.script = (call) => call.reset();
    for (const way of waysOf("onError")) {
      const answer = await t.ask(request("GET", `/onError/${way}`), "throwing");
      expect(answer.status, way).toBe(502);
      expect(answer.get("proxy-status"), way).toBe("fetchway; error=connection_terminated");
      expectNoSecret(answer);
      const both = await t.ask(request("GET", `/onRequest/${way}/onError/${way}`), "throwing");
      expect(both.status, way).toBe(500);
      expect(both.get("proxy-status"), way).toBe("fetchway; error=proxy_internal_error");
      expectNoSecret(both);
    }
  },

  async "a trustProxy that fails gives 500 and trusts nobody"(t: Tools): Promise<void> {
    const answer = await askTwice(t, "/", "distrusting");
    expect(answer.status).toBe(500);
    expect(answer.get("proxy-status")).toBe("fetchway; error=proxy_internal_error");
    expectNoSecret(answer);
    expect(t.upstream.calls).toEqual([]);
  },

  async "hooks can be asked about any request"(t: Tools): Promise<void> {
    // A Request cannot be made of all that a server takes: that is no fault of the hook's.
    for (const bytes of [
      request("TRACE", "/"),
      request("GET", "/", [["Host", "a:b:c"]]),
      request("GET", "/", [["Host", "a b"]]),
      request("GET", "/", [["Host", "[::1"]]),
      request("PROPFIND", "/", [["Host", ""]]),
      request("OPTIONS", "*"),
    ]) {
      const answer = await t.ask(bytes, "throwing");
      expect(answer.status, bytes.toString("latin1")).not.toBe(500);
      expectNoSecret(answer);
    }
  },
};
