/**
 * The frames of a client's WebSocket (RFC 6455 §5 to §7) at servers that read frames. Other servers pass the bytes
 * through a tunnel. With a tunnel, these tests show that the upstream gets the frames, and that the client gets the
 * upstream's answer.
 */
import { createHash } from "node:crypto";
import type { Socket } from "node:net";
import { expect } from "vitest";
import type { Client } from "../helpers/client.ts";
import { rfc } from "../conformance/rfc.ts";
import { handshake, offer } from "../helpers/handshake.ts";
import { mebibyte } from "../helpers/large.ts";
import type { Tools } from "./_suite.ts";
import { until } from "../helpers/wait.ts";
import { accept } from "../helpers/websocket.ts";
import { type Header, request } from "../helpers/wire.ts";
import { growth } from "./large.ts";

/** Writes a frame as a client does. The masking key is zero, so that the payload stays readable. */
function frame(first: number, payload: number[] | string = ""): Buffer {
  const bytes = Buffer.from(payload as string);
  return Buffer.concat([Buffer.of(first, 0x80 | bytes.length, 0, 0, 0, 0), bytes]);
}

/** Frames that violate the protocol, each with the close code for that violation. */
const violations: [string, Buffer[], number][] = [
  ["a reserved bit", [frame(0xc1, "a")], 1002],
  ["a reserved opcode", [frame(0x83, "a")], 1002],
  ["a fragmented ping", [frame(0x09, "a")], 1002],
  ["a continuation of nothing", [frame(0x80, "a")], 1002],
  ["a message inside of another", [frame(0x01, "a"), frame(0x81, "b")], 1002],
  ["a text that is not UTF-8", [frame(0x81, [0xff])], 1007],
  ["a reserved close code", [frame(0x88, [3, 237])], 1002],
];

/** The outcome of a WebSocket whose client has sent some frames. */
interface Outcome {
  /** The bytes that the client received up to the end of its connection; undefined if the connection is still open. */
  received: Buffer | undefined;
  messages: string[];
}

/** Opens a WebSocket, sends frames, and waits until the server has closed it, or the upstream has got a message. */
async function send(t: Tools, frames: readonly Buffer[]): Promise<Outcome> {
  const outcome: Outcome = { received: undefined, messages: [] };
  t.upstream.script = async (call) => {
    (await accept(call)).on("message", (data: Buffer) => outcome.messages.push(data.toString()));
  };
  const client = await t.connect();
  client.send(request("GET", "/", handshake));
  expect((await client.readHead()).status).toBe(101);
  void client.rest().then(
    (received) => (outcome.received = received),
    () => {},
  );
  client.send(...frames);
  await until(() => outcome.received !== undefined || outcome.messages.length > 0, "an outcome");
  client.leave("FIN");
  return outcome;
}

/** The head of a frame whose length is written in eight bytes. A client's frame is masked. */
function headOf(length: bigint, isMasked: boolean): Buffer {
  const head = Buffer.alloc(isMasked ? 14 : 10);
  head.writeUInt16BE(isMasked ? 0x82_ff : 0x82_7f);
  head.writeBigUInt64BE(length, 2);
  return head;
}

/** Lengths that are negative, or too large for memory, if they are read as a signed number of 64 or 32 bits. */
const LENGTHS = [2n ** 63n, 2n ** 64n - 1n, 2n ** 63n - 1n, 2n ** 31n, 2n ** 32n - 1n];

/** The number of fragments of a message. Each fragment has its own head, and one byte of the message. */
const FRAGMENTS = 300_000;

/** A message of many fragments, without its last one. */
function fragment(isMasked: boolean): Buffer {
  const make = (first: number): Buffer =>
    isMasked ? frame(first, "x") : Buffer.of(first, 1, 0x78);
  return Buffer.concat([make(0x02), Buffer.alloc(make(0).length * (FRAGMENTS - 2), make(0))]);
}

/** Opens a WebSocket to an upstream that neither reads nor writes frames. @returns the client, and the upstream's socket */
async function openRaw(t: Tools): Promise<{ client: Client; socket: Socket }> {
  let socket: Socket | undefined;
  t.upstream.script = (call) => {
    const accepted = createHash("sha1")
      .update(`${call.get("sec-websocket-key")}258EAFA5-E914-47DA-95CA-C5AB0DC85B11`)
      .digest("base64");
    const fields: Header[] = [...offer("websocket"), ["Sec-WebSocket-Accept", accepted]];
    call.reply("101 Switching Protocols", fields, null);
    ({ socket } = call.link.takeOver());
  };
  const client = await t.connect();
  client.send(request("GET", "/", handshake));
  expect((await client.readHead()).status).toBe(101);
  return { client, socket: socket as Socket };
}

/** Counts the bytes that a socket receives, keeps the first 20 of them, and notes its end. */
function count(socket: Socket): { bytes: number; isOver: boolean; first: Buffer } {
  const seen = { bytes: 0, isOver: false, first: Buffer.alloc(0) };
  socket.on("data", (data: Buffer) => {
    if (seen.bytes < 20) seen.first = Buffer.concat([seen.first, data]).subarray(0, 20);
    seen.bytes += data.length;
  });
  socket.on("error", () => {}).on("close", () => (seen.isOver = true));
  socket.on("end", () => (seen.isOver = true)).resume();
  return seen;
}

export const frames = {
  async "CVE-2026-1526, CVE-2026-1528, CVE-2026-2229: a frame of a client with a length of 64 bits ends its WebSocket"(
    t: Tools,
  ): Promise<void> {
    for (const length of LENGTHS) {
      const { received, messages } = await send(t, [headOf(length, true), Buffer.from("xxxx")]);
      expect(messages).toEqual([]);
      // The proxy, or the upstream of a tunnel, has closed the WebSocket.
      const code = received?.[0] === 0x88 ? received.readUInt16BE(2) : 1009;
      expect([1002, 1009], String(length)).toContain(code);
    }
  },

  async "CVE-2026-1526, CVE-2026-1528, CVE-2026-2229: a frame of an upstream with a length of 64 bits is refused or forwarded"(
    t: Tools,
  ): Promise<void> {
    for (const length of LENGTHS) {
      const { client, socket } = await openRaw(t);
      const [down, up] = [count(client.socket), count(socket)];
      const sent = Buffer.concat([headOf(length, false), Buffer.from("xxxx")]);
      socket.write(sent);
      await until(() => down.bytes >= 4 || down.isOver, "the frame, or the end");
      // If the proxy reads frames, it refuses this one: the client gets a close frame (0x88), or its connection ends.
      const isRead = down.isOver || down.first[0] === 0x88;
      if (!isRead)
        expect(down.first.subarray(0, sent.length)).toEqual(sent.subarray(0, down.bytes));
      expect(isRead, String(length)).toBe(["bun", "deno"].includes(t.host.name));
      if (isRead) {
        await until(() => up.bytes >= 8 || up.isOver, "the close frame at the upstream");
        const [first, , ...rest] = up.first;
        const [high = 0, low = 0] = [4, 5].map((at) => (rest[at] ?? 0) ^ (rest[at - 4] ?? 0));
        expect([first, high * 256 + low], String(length)).toEqual([0x88, 1009]);
      }
      client.leave("FIN");
      await t.upstream.reset();
    }
  },

  async "CVE-2026-48779, GHSA-vxpw-j846-p89q: hundreds of thousands of fragments take little memory, in both directions"(
    t: Tools,
  ): Promise<void> {
    for (const isUp of [true, false]) {
      const { client, socket } = await openRaw(t);
      const [from, to] = isUp ? [client.socket, socket] : [socket, client.socket];
      const seen = count(to);
      const back = count(from);
      const grown = await growth(t, async () => {
        from.write(fragment(isUp));
        from.write(isUp ? frame(0x80, "x") : Buffer.of(0x80, 1, 0x78));
        const isThere = (): boolean => seen.bytes >= FRAGMENTS || seen.isOver || back.isOver;
        await until(isThere, "the message, or the end");
      });
      expect(grown, isUp ? "to the upstream" : "to the client").toBeLessThan(128 * mebibyte);
      client.leave("FIN");
      await t.upstream.reset();
    }
  },

  async "RFC 6455 §10.4: a client's far too large message ends the WebSocket before the whole message has arrived"(
    t: Tools,
  ): Promise<void> {
    rfc("6455-10.4-limits");
    // The head announces 2^40 bytes, and one byte is sent.
    const head = Buffer.of(0x82, 0xff, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1);
    const { received, messages } = await send(t, [head]);
    expect([received !== undefined, messages]).toEqual([true, []]);
  },

  async "RFC 6455 §5: a malformed frame of a client ends its WebSocket, and the upstream gets no message from that frame"(
    t: Tools,
  ): Promise<void> {
    rfc("6455-5.2-reserved", "6455-5.4-fragments", "6455-5.5-control", "6455-5.6-utf8");
    for (const [what, malformed] of violations) {
      const { received, messages } = await send(t, malformed);
      expect([received !== undefined, messages], what).toEqual([true, []]);
    }
  },

  async "RFC 6455 §5.1: an unmasked frame of a client ends its WebSocket"(t: Tools): Promise<void> {
    rfc("6455-5.1-mask-checked");
    const { received, messages } = await send(t, [Buffer.of(0x81, 2, 0x68, 0x69)]);
    expect([received !== undefined, messages]).toEqual([true, []]);
  },

  async "RFC 6455 §7.1.7: a malformed frame of a client is answered with a close frame and its code"(
    t: Tools,
  ): Promise<void> {
    rfc("6455-7.1.7-fail");
    for (const [what, malformed, code] of violations) {
      const { received } = await send(t, malformed);
      expect([received?.[0], received?.readUInt16BE(2)], what).toEqual([0x88, code]);
    }
  },

  async "RFC 6455 §5.5.1, §7.1.1: a close frame of a client is answered, and then the server closes the connection"(
    t: Tools,
  ): Promise<void> {
    rfc("6455-5.5.1-close-answered", "6455-7.1.1-close-tcp", "6455-5.1-masked");
    const { received } = await send(t, [frame(0x88, [3, 232])]);
    expect(received).toEqual(Buffer.of(0x88, 2, 3, 232));
  },

  async "RFC 6455 §5.5.2: a ping of a client is answered with a pong that has the same data"(
    t: Tools,
  ): Promise<void> {
    rfc("6455-5.5.2-pong");
    const { received } = await send(t, [frame(0x89, "ping"), frame(0x88, [3, 232])]);
    expect(received).toEqual(Buffer.from([0x8a, 4, ...Buffer.from("ping"), 0x88, 2, 3, 232]));
  },
};
