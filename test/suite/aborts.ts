/** A client that disconnects closes its upstream request, and an incomplete upload never looks complete. */
import { expect } from "vitest";
import type { Client } from "../helpers/client.ts";
import { pour } from "../helpers/large.ts";
import { advisory } from "../conformance/advisory.ts";
import { rfc } from "../conformance/rfc.ts";
import type { Tools } from "./_suite.ts";
import type { Call } from "../helpers/link.ts";
import { settled, until, within } from "../helpers/wait.ts";
import { chunk, request } from "../helpers/wire.ts";

/** A time limit in milliseconds. It is shorter than the time after which Bun closes idle connections. */
const promptly = 8000;
const ways = ["FIN", "RST"] as const;
type Way = (typeof ways)[number];

async function expectClosed(call: Call, what: string): Promise<void> {
  await within(call.link.closed, `${what}: the upstream's connection closed`, promptly);
}

async function expectStillWorks(t: Tools): Promise<void> {
  t.upstream.script = (call) => call.reply(200, [], "works");
  expect(await t.ask(request("GET", "/after"))).toMatchObject({ status: 200, text: "works" });
  await t.upstream.reset();
}

/** Disconnects the client when the upstream has received a part of its upload. */
async function expectIncomplete(t: Tools, send: (client: Client) => void): Promise<void> {
  for (const how of ways) {
    const client = await t.connect();
    send(client);
    const call = await t.unfinished();
    client.leave(how);
    if (call) {
      await expectClosed(call, how);
      expect(call.state, how).toBe("cut");
    } else {
      await settled(() => t.upstream.calls.length);
      expect(t.upstream.calls.filter(({ state }) => state === "complete")).toEqual([]);
    }
    await t.upstream.reset();
  }
  await expectStillWorks(t);
}

async function leaveUnanswered(t: Tools, how: Way): Promise<void> {
  for (const bytes of [request("GET", "/"), request("POST", "/", [], "body")]) {
    t.upstream.script = () => {};
    const client = await t.connect();
    client.send(bytes);
    const call = await t.upstream.call();
    await call.done;
    client.leave(how);
    await expectClosed(call, how);
    await t.upstream.reset();
  }
  await expectStillWorks(t);
}

/** Responds with `answer`, whose body is incomplete, and disconnects the client when it has received those bytes. */
async function leaveSilentBody(t: Tools, answer: string, how: Way): Promise<void> {
  t.upstream.script = (call) => call.write(`HTTP/1.1 200 OK\r\n${answer}`);
  const client = await t.connect();
  client.send(request("GET", "/"));
  const head = await client.readHead();
  if (!answer.endsWith("\r\n\r\n")) {
    expect(await client.pieces(head).next()).toMatchObject({ done: false });
  }
  client.leave(how);
  await expectClosed(await t.upstream.call(), how);
  await t.upstream.reset();
  await expectStillWorks(t);
}

const sized = "Content-Length: 10\r\n\r\n";
const chunked = "Transfer-Encoding: chunked\r\n\r\n4\r\nhalf\r\n";
const events = "Content-Type: text/event-stream\r\n\r\ndata: 1\n\n";

async function leaveAnsweredUpload(t: Tools, framing: string, how: Way): Promise<void> {
  t.upstream.script = (call) => call.write("HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf");
  const client = await t.connect();
  client.send(`POST / HTTP/1.1\r\nHost: proxy.test\r\n${framing}`);
  await client.pieces(await client.readHead()).next();
  client.leave(how);
  const call = await t.upstream.call();
  await expectClosed(call, how);
  expect(call.state, how).toBe("cut");
  await t.upstream.reset();
}

async function leaveTogether(t: Tools, how: Way): Promise<void> {
  t.upstream.script = () => {};
  const clients = await Promise.all(Array.from({ length: 100 }, () => t.connect()));
  for (const client of clients) client.send(request("GET", "/"));
  await until(() => t.upstream.calls.length === 100, "100 requests at the upstream");
  for (const client of clients) client.leave(how);
  await within(Promise.all(t.upstream.links.map((link) => link.closed)), "all closed");
  await expectStillWorks(t);
}

export const aborts = {
  async "a client that disconnects by FIN before the response headers closes the upstream request"(
    t: Tools,
  ): Promise<void> {
    rfc("9112-9.5-monitor");
    await leaveUnanswered(t, "FIN");
  },

  async "a client that disconnects by RST before the response headers closes the upstream request"(
    t: Tools,
  ): Promise<void> {
    rfc("9112-9.5-monitor");
    await leaveUnanswered(t, "RST");
  },

  async "a client that disconnects after an upload in several packets closes the upstream request"(
    t: Tools,
  ): Promise<void> {
    t.upstream.script = () => {};
    const client = await t.connect();
    client.send(request("POST", "/", [["Content-Length", "5000"]]), "x".repeat(1000));
    const call = await t.upstream.call();
    await until(() => call.length > 0, "part of the body");
    client.send("x".repeat(4000));
    await call.done;
    client.leave("RST");
    await expectClosed(call, "RST");
    await expectStillWorks(t);
  },

  async "a client that disconnects by FIN while the response body stalls closes the upstream request"(
    t: Tools,
  ): Promise<void> {
    for (const answer of [`${sized}half`, chunked]) await leaveSilentBody(t, answer, "FIN");
  },

  async "a client that disconnects by RST while the response body stalls closes the upstream request"(
    t: Tools,
  ): Promise<void> {
    for (const answer of [`${sized}half`, chunked]) await leaveSilentBody(t, answer, "RST");
  },

  async "a client that disconnects by FIN before the first byte of the response body closes the upstream request"(
    t: Tools,
  ): Promise<void> {
    await leaveSilentBody(t, sized, "FIN");
  },

  async "a client that disconnects by RST before the first byte of the response body closes the upstream request"(
    t: Tools,
  ): Promise<void> {
    await leaveSilentBody(t, sized, "RST");
  },

  async "a client that disconnects by FIN from a server-sent event stream closes the upstream request"(
    t: Tools,
  ): Promise<void> {
    await leaveSilentBody(t, events, "FIN");
  },

  async "a client that disconnects by RST from a server-sent event stream closes the upstream request"(
    t: Tools,
  ): Promise<void> {
    await leaveSilentBody(t, events, "RST");
  },

  async "a client that disconnects during a large response body closes the upstream request"(
    t: Tools,
  ): Promise<void> {
    rfc("9112-9.5-monitor");
    for (const how of ways) {
      t.upstream.script = async (call) => {
        call.write("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n");
        await call.pour(1024 ** 3, { chunked: true });
      };
      const client = await t.connect();
      client.send(request("GET", "/"));
      const pieces = client.pieces(await client.readHead());
      for (let length = 0; length < 1_000_000;) {
        const next = await within(pieces.next(), "a piece");
        length += next.done ? 0 : next.value.length;
      }
      client.leave(how);
      await expectClosed(await t.upstream.call(), how);
      await t.upstream.reset();
    }
    await expectStillWorks(t);
  },

  async "an interrupted upload with Content-Length never looks complete to the upstream"(
    t: Tools,
  ): Promise<void> {
    rfc("9112-6.3-short-request");
    await expectIncomplete(t, (client) =>
      client.send(request("POST", "/", [["Content-Length", "100"]]), "half"),
    );
  },

  async "an interrupted chunked upload never looks complete to the upstream"(
    t: Tools,
  ): Promise<void> {
    rfc("9112-8-chunked-cut");
    await expectIncomplete(t, (client) =>
      client.send(request("PUT", "/", [["Transfer-Encoding", "chunked"]]), chunk("half")),
    );
    await expectIncomplete(t, (client) =>
      client.send(
        request("POST", "/", [["Transfer-Encoding", "chunked"]]),
        chunk("half"),
        "a\r\nha",
      ),
    );
  },

  async "a chunked upload without its last CRLF never looks complete to the upstream"(
    t: Tools,
  ): Promise<void> {
    advisory("bun#29732");
    await expectIncomplete(t, (client) =>
      client.send(request("POST", "/", [["Transfer-Encoding", "chunked"]]), chunk("half"), "0\r\n"),
    );
  },

  async "an interrupted large upload never looks complete to the upstream"(
    t: Tools,
  ): Promise<void> {
    await expectIncomplete(t, (client) => {
      client.send(request("POST", "/", [["Content-Length", String(1024 ** 3)]]));
      void pour(client.socket, 1024 ** 3);
    });
  },

  async "a client that disconnects while the upstream responds to its upload with Content-Length closes both sides"(
    t: Tools,
  ): Promise<void> {
    for (const how of ways) await leaveAnsweredUpload(t, "Content-Length: 100\r\n\r\nhalf", how);
  },

  async "a client that disconnects while the upstream responds to its chunked upload closes both sides"(
    t: Tools,
  ): Promise<void> {
    for (const how of ways) await leaveAnsweredUpload(t, chunked, how);
  },

  async "100 clients that disconnect at the same time by FIN leave no upstream request open"(
    t: Tools,
  ): Promise<void> {
    await leaveTogether(t, "FIN");
  },

  async "100 clients that disconnect at the same time by RST leave no upstream request open"(
    t: Tools,
  ): Promise<void> {
    await leaveTogether(t, "RST");
  },
};
