/** Pipelined requests reach the upstream in an order that keeps their meaning (RFC 9112 §9.3.2). */
import { expect } from "vitest";
import type { SetupName } from "../hosts/_setups.ts";
import { rfc } from "../conformance/rfc.ts";
import type { Tools } from "./_suite.ts";
import { settled, until } from "../helpers/wait.ts";
import { chunk, type Header, lastChunk, request } from "../helpers/wire.ts";

/** Waits until any request that the proxy sends too early has reached the upstream. */
async function waitForStrays({ upstream }: Tools): Promise<void> {
  await settled(() => upstream.calls.length, undefined, 100);
}

/** The only name that the setup `routed` serves. */
const shop: Header = ["Host", "shop.test"];

/**
 * Sends a request and a GET behind it, and expects that the GET reaches the upstream only when the first response has
 * ended.
 */
async function expectInTurn(t: Tools, bytes: Buffer, setup: SetupName): Promise<void> {
  const { upstream } = t;
  const order: string[] = [];
  upstream.script = async (call) => {
    await call.done;
    order.push(`${call.target.split("?")[0]} begins`);
    if (order.length > 1) return call.reply(200, [], "second");
    call.write("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", chunk("half"));
    await waitForStrays(t);
    order.push("/first ends");
    call.write(chunk("whole"), lastChunk);
  };
  const client = await t.connect(setup);
  client.send(bytes, request("GET", "/second", [shop]));
  expect(await client.read()).toMatchObject({ status: 200, text: "halfwhole" });
  expect(await client.read()).toMatchObject({ status: 200, text: "second" });
  expect(order).toEqual(["/first begins", "/first ends", "/second begins"]);
  await upstream.reset();
}

export const pipelining = {
  async "RFC 9112 §9.3.2: a pipelined request that follows an unsafe request is sent after the response to that request"(
    t: Tools,
  ): Promise<void> {
    rfc("9112-9.3.2-safe");
    await expectInTurn(t, request("PUT", "/first", [shop], "body"), "default");
    await expectInTurn(t, request("DELETE", "/first", [shop]), "default");
    const chunked: Header[] = [shop, ["Transfer-Encoding", "chunked"]];
    const bytes = [request("POST", "/first", chunked), chunk("body"), lastChunk];
    await expectInTurn(t, Buffer.concat(bytes), "default");
  },

  async "with hooks and with routes, a pipelined request that follows an unsafe request is sent after the response to that request"(
    t: Tools,
  ): Promise<void> {
    for (const setup of ["hooked", "routed"] as const) {
      await expectInTurn(t, request("PUT", "/first", [shop], "body"), setup);
      await expectInTurn(t, request("DELETE", "/first", [shop]), setup);
    }
  },

  async "RFC 9112 §9.3.2: a pipelined request that follows a large unsafe request is sent after the response to that request"(
    t: Tools,
  ): Promise<void> {
    await expectInTurn(t, request("POST", "/first", [shop], "x".repeat(300_000)), "default");
  },

  async "RFC 9112 §9.3.2: the pipelined requests of a connection are sent one after the other"(
    t: Tools,
  ): Promise<void> {
    rfc("9112-9.3.2-safe");
    const { upstream } = t;
    const order: string[] = [];
    upstream.script = async (call) => {
      await call.done;
      order.push(`${call.target} begins`);
      await waitForStrays(t);
      order.push(`${call.target} ends`);
      call.reply(200, [], call.target);
    };
    const client = await t.connect();
    client.send(
      request("GET", "/1"),
      request("GET", "/2"),
      request("PUT", "/3", [], "body"),
      request("GET", "/4"),
      request("DELETE", "/5"),
    );
    const targets = ["/1", "/2", "/3", "/4", "/5"];
    for (const target of targets) {
      expect(await client.read()).toMatchObject({ status: 200, text: target });
    }
    expect(order).toEqual(targets.flatMap((target) => [`${target} begins`, `${target} ends`]));
  },

  async "a queued pipelined request whose client disconnects is removed and never sent"(
    t: Tools,
  ): Promise<void> {
    const { upstream } = t;
    upstream.script = () => {};
    const client = await t.connect();
    client.send(request("PUT", "/first", [], "body"), request("GET", "/second"));
    const call = await upstream.call();
    await call.done;
    client.leave("RST");
    await until(() => call.link.isClosed, "the first one's connection closed");
    await waitForStrays(t);
    expect(upstream.calls.map(({ target }) => target)).toEqual(["/first"]);
  },
};
