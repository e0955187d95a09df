/**
 * Truncated bodies that end with the connection, so that only a reset shows the truncation; and the requests that follow
 * such bodies on a connection.
 */
import { expect } from "vitest";
import type { Client } from "../helpers/client.ts";
import { rfc } from "../conformance/rfc.ts";
import type { Tools } from "./_suite.ts";
import { pause, until, within } from "../helpers/wait.ts";
import { chunk, request } from "../helpers/wire.ts";

const http10 = "GET / HTTP/1.0\r\nHost: proxy.test\r\n\r\n";

/** Waits until the connection is closed, and returns whether it was reset. */
async function wasReset(client: Client): Promise<boolean> {
  let isReset = false;
  client.socket.on("error", () => (isReset = true));
  await client.rest().catch(() => {});
  client.finish();
  await within(client.closed, "the connection's end");
  return isReset;
}

export const truncation = {
  async "a truncated body does not end with a graceful close for an HTTP/1.0 client"(
    t: Tools,
  ): Promise<void> {
    for (const how of ["FIN", "RST"] as const) {
      t.upstream.script = (call) => {
        call.write("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", chunk("hello"));
      };
      const client = await t.connect();
      client.send(http10);
      const head = await client.readHead();
      expect(head.status).toBe(200);
      // Without these fields, only the end of the connection ends the body.
      expect(head.all("content-length")).toEqual([]);
      expect(head.all("transfer-encoding")).toEqual([]);
      const call = await t.upstream.call();
      const ended = wasReset(client);
      if (how === "RST") call.reset();
      else call.close();
      expect(await ended, how).toBe(true);
      await t.upstream.reset();
    }
  },

  async "a close-delimited body whose upstream connection is reset never looks complete"(
    t: Tools,
  ): Promise<void> {
    rfc("9112-8-incomplete");
    const text = "x".repeat(5000);
    for (let round = 0; round < 40; round++) {
      t.upstream.script = async (call) => {
        call.write("HTTP/1.1 200 OK\r\n\r\n", text.slice(0, 100 + round * 100));
        if (round % 2 === 1) await pause(round % 7);
        call.reset();
      };
      const client = await t.connect();
      let isReset = false;
      client.socket.on("error", () => (isReset = true));
      client.send(request("GET", "/"));
      // Bun.serve may truncate the response within the head.
      const answer = await client.read().catch(() => undefined);
      if (answer?.status !== 502) expect(answer?.cut || isReset, `round ${round}`).toBe(true);
      client.leave("FIN");
    }
  },

  async "a complete body of unknown length ends with a graceful close for an HTTP/1.0 client"(
    t: Tools,
  ): Promise<void> {
    t.upstream.script = (call) => {
      call.write("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", chunk("hello"));
      call.write("0\r\n\r\n");
    };
    const client = await t.connect();
    client.send(http10);
    let isReset = false;
    client.socket.on("error", () => (isReset = true));
    expect(await client.read()).toMatchObject({ status: 200, text: "hello", cut: false });
    expect(isReset).toBe(false);
  },

  async "a truncated response to a pipelined request closes the client's connection"(
    t: Tools,
  ): Promise<void> {
    rfc("9112-9.3.2-inbound-failure");
    let open: (() => void) | undefined;
    t.upstream.script = async (call) => {
      if (call.target === "/first") {
        await new Promise<void>((resolve) => (open = resolve));
        return call.reply(200, [], "first");
      }
      call.write("HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\npartial");
      call.close();
    };
    const client = await t.connect();
    client.send(request("GET", "/first"), request("GET", "/second"));
    await until(() => open !== undefined, "the first request");
    // A server that proxies pipelined requests in sequence has not sent the second request yet, so this wait may time
    // out.
    const second = t.upstream.call(1).then((call) => call.link.closed);
    await within(second, "the second response's end", 500).catch(() => {});
    open?.();
    expect(await client.read()).toMatchObject({ status: 200, text: "first", cut: false });
    await within(client.rest(), "the connection's end");
    expect(client.isClosed || client.socket.readableEnded).toBe(true);
  },
};
