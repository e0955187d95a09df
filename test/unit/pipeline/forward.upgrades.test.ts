/** Upgrades, such as WebSockets, in the core: their fields, the 101, the hooks, and which are refused. */
import { describe, expect, test, vi } from "vitest";
import type { Respond } from "../../../src/pipeline/exchange.ts";
import { forward } from "../../../src/pipeline/pipeline.ts";
import type { ProxyOptions } from "../../../src/options/proxyoptions.ts";
import { inProcess } from "../../../src/fetch/standardapps.ts";
import { compile } from "../../../src/plan.ts";
import type { Tunnel } from "../../../src/transport/tunnel.ts";
import type { UpstreamResponse } from "../../../src/transport/message.ts";
import { offer } from "../../helpers/handshake.ts";
import { CAPABLE, FakeTransport, fakeIncoming, fakeResponse, TARGET } from "../../helpers/fakes.ts";

const handshake = [
  ["Host", "proxy.test"],
  ["Connection", "Upgrade, X-Hop"],
  ["Upgrade", "websocket"],
  ["X-Hop", "1"],
  ["Sec-WebSocket-Key", "k"],
  ["Sec-WebSocket-Protocol", "chat"],
].flat();

class FakeTunnel implements Tunnel {
  destroyed = 0;
  attach(): void {}
  write(): boolean {
    return true;
  }
  pause(): void {}
  resume(): void {}
  end(): void {}
  destroy(): void {
    this.destroyed++;
  }
}

/** Forwards an upgrade; `answered` is the response that the runtime would send. */
async function upgrade(
  options: ProxyOptions = {},
  over: Partial<UpstreamResponse> = {},
  incoming: Parameters<typeof fakeIncoming>[0] = {},
) {
  const tunnel = new FakeTunnel();
  const headers = [
    ["Upgrade", "WebSocket"],
    ["Connection", "Upgrade, X-Hop"],
    ["X-Hop", "1"],
    ["Content-Length", "5"],
    ["Sec-WebSocket-Accept", "a"],
    ["Set-Cookie", "a=1; Domain=up.test"],
  ].flat();
  const transport = new FakeTransport(() =>
    fakeResponse({ status: 101, statusText: "", headers, tunnel, ...over }),
  );
  transport.capabilities = { ...CAPABLE, upgrade: true };
  let answered: UpstreamResponse | undefined;
  const respond: Respond = (received) => {
    answered = received;
    return { status: received.status, headers: new Headers(), body: null } as Response;
  };
  const client = fakeIncoming({ headers: handshake, upgrade: "websocket", ...incoming });
  const plan = compile(options, () => transport);
  const response = await forward(client, TARGET, plan, undefined, respond);
  return { tunnel, transport, answered, response, client };
}

test("the fields of an upgrade request change like those of any request, and the transport gets the protocol", async () => {
  const { transport } = await upgrade({ xfwd: false, headers: { "x-added": "1" } });
  expect(transport.hops[0]).toMatchObject({
    upgrade: "websocket",
    headers: ["Sec-WebSocket-Key", "k", "Sec-WebSocket-Protocol", "chat", "x-added", "1"],
    body: null,
  });
});

test("the fields of a 101 change like those of any response, it keeps its tunnel, and no listener is left", async () => {
  const { answered, tunnel, response, client } = await upgrade({ cookieDomainRewrite: "" });
  expect(response.status).toBe(101);
  expect(answered).toMatchObject({ status: 101, body: null, tunnel });
  expect(answered?.headers).toEqual(["Sec-WebSocket-Accept", "a", "Set-Cookie", "a=1"]);
  expect(tunnel.destroyed).toBe(0);
  expect(client.listeners.size).toBe(0);
});

test.each([
  ["names another protocol", { headers: offer("h2c").flat() }],
  ["names none", { headers: ["Connection", "Upgrade"] }],
  ["lacks Connection: Upgrade", { headers: ["Upgrade", "websocket", "Connection", "close"] }],
  ["has no tunnel", { tunnel: undefined }],
])("a 101 that %s becomes 502, and its tunnel, if any, is closed", async (_, over) => {
  const { response, tunnel } = await upgrade({}, over);
  expect(response.status).toBe(502);
  expect(tunnel.destroyed).toBe("tunnel" in over ? 0 : 1);
});

test("a 101 to a request without Upgrade becomes 502", async () => {
  const { response, tunnel } = await upgrade({}, {}, { headers: ["Host", "proxy.test"] });
  expect(response.status).toBe(502);
  expect(tunnel.destroyed).toBe(1);
});

test("an ordinary response to an upgrade is forwarded", async () => {
  const { response } = await upgrade({}, { status: 403, tunnel: undefined });
  expect(response.status).toBe(403);
});

test("a redirect of an upgrade is not followed", async () => {
  const { response, transport } = await upgrade(
    { followRedirects: true, redirectTargets: "any" },
    { status: 302, headers: ["Location", `${TARGET}/next`], tunnel: undefined },
  );
  expect(response.status).toBe(302);
  expect(transport.hops).toHaveLength(1);
});

test("a transport that cannot switch protocols gets no request, and the error of the 501 names the fix", async () => {
  const transport = new FakeTransport();
  const onError = vi.fn();
  const plan = compile({ onError, transport }, () => transport);
  const respond: Respond = ({ status }) => new Response(null, { status });
  const client = fakeIncoming({ headers: handshake, upgrade: "websocket" });
  const response = await forward(client, TARGET, plan, undefined, respond);
  expect(response.status).toBe(501);
  expect(transport.hops).toEqual([]);
  expect(onError.mock.calls[0]?.[0]).toMatchObject({
    message: expect.stringMatching(/transport fake cannot switch.*leave out `transport`/) as string,
  });
});

test("an app in this process gets no upgrade", async () => {
  const app = { fetch: vi.fn() };
  const transport = new FakeTransport();
  transport.capabilities = { ...CAPABLE, upgrade: true };
  const respond: Respond = ({ status }) => new Response(null, { status });
  const client = fakeIncoming({ headers: handshake, upgrade: "websocket" });
  const plan = compile({}, () => transport, { inProcess });
  expect((await forward(client, app, plan, undefined, respond)).status).toBe(501);
  expect(app.fetch).not.toHaveBeenCalled();
});

test("only protocols in `upgrades` are forwarded, and with an empty list every Upgrade is ignored", async () => {
  const headers = ["Host", "proxy.test", "Upgrade", "TCP, websocket"];
  const other = await upgrade(
    { upgrades: ["tcp"] },
    { headers: offer("tcp").flat() },
    { headers, upgrade: "tcp" },
  );
  expect(other.response.status).toBe(101);
  expect(other.transport.hops[0]?.upgrade).toBe("tcp");
  const none = await upgrade({ upgrades: [] }, { status: 200, tunnel: undefined }, { headers });
  expect(none.transport.hops[0]?.upgrade).toBeUndefined();
});

describe("hooks", () => {
  test("onResponse may refuse a 101, which closes the tunnel", async () => {
    const { response, tunnel } = await upgrade({
      onResponse: () => new Response("no", { status: 403 }),
    });
    expect(response.status).toBe(403);
    expect(tunnel.destroyed).toBe(1);
  });

  test("an exception of onResponse closes the tunnel", async () => {
    let tunnel: Tunnel | undefined;
    const transport = new FakeTransport(() => {
      tunnel = new FakeTunnel();
      return fakeResponse({ status: 101, headers: offer("websocket").flat(), tunnel });
    });
    transport.capabilities = { ...CAPABLE, upgrade: true };
    const options: ProxyOptions = {
      onResponse: () => {
        throw new Error("thrown");
      },
    };
    const plan = compile(options, () => transport);
    const client = fakeIncoming({ headers: handshake, upgrade: "websocket" });
    const respond: Respond = () =>
      ({ status: 101, headers: new Headers(), body: null }) as Response;
    await expect(forward(client, TARGET, plan, undefined, respond)).rejects.toThrow("thrown");
    expect(tunnel).toMatchObject({ destroyed: 1 });
  });

  test("an onRequest that gives an upgrade a body or another method makes the call reject", async () => {
    for (const change of [{ body: "x" }, { method: "POST" }]) {
      const sent = upgrade({ onRequest: (draft) => void Object.assign(draft, change) });
      await expect(sent).rejects.toThrow(/`onRequest`.*the method and the body of an upgrade/);
    }
  });

  test("onRequest may refuse an upgrade before anything is sent", async () => {
    const { response, transport } = await upgrade({
      onRequest: () => new Response(null, { status: 401 }),
    });
    expect(response.status).toBe(401);
    expect(transport.hops).toEqual([]);
  });
});

test("an upgrade whose connection is refused is sent once more", async () => {
  const { response, transport } = await (async () => {
    const { ProxyError } = await import("../../../src/error.ts");
    const tunnel = new FakeTunnel();
    let attempts = 0;
    const fake = new FakeTransport(() => {
      if (attempts++ === 0) throw new ProxyError("connection_refused");
      return fakeResponse({ status: 101, headers: offer("websocket").flat(), tunnel });
    });
    fake.capabilities = { ...CAPABLE, upgrade: true };
    const respond: Respond = ({ status }) => ({ status }) as Response;
    const client = fakeIncoming({ headers: handshake, upgrade: "websocket" });
    const plan = compile({}, () => fake);
    return { response: await forward(client, TARGET, plan, undefined, respond), transport: fake };
  })();
  expect(response.status).toBe(101);
  expect(transport.hops.map((hop) => [hop.upgrade, hop.newConnection])).toEqual([
    ["websocket", undefined],
    ["websocket", true],
  ]);
});

test("an upgrade with a body is refused before anything is sent", async () => {
  const headers = [...handshake, "Content-Length", "5"];
  const { response, transport } = await upgrade({}, {}, { headers });
  expect(response.status).toBe(400);
  expect(transport.hops).toEqual([]);
});
