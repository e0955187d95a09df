/**
 * The frames of a client's WebSocket (RFC 6455 §5 to §7), at servers that read them. A tunnel passes them unread: there,
 * these tests show that the upstream gets them and that its answer comes back.
 */
import { expect } from "vitest";
import { rfc } from "../conformance/rfc.ts";
import { handshake } from "../_handshake.ts";
import type { Tools } from "../_suite.ts";
import { until } from "../_wait.ts";
import { accept } from "../_websocket.ts";
import { request } from "../_wire.ts";

/** Writes a frame as a client does. The masking key is zero, so that the payload stays readable. */
function frame(first: number, payload: number[] | string = ""): Buffer {
  const bytes = Buffer.from(payload as string);
  return Buffer.concat([Buffer.of(first, 0x80 | bytes.length, 0, 0, 0, 0), bytes]);
}

/** Frames that violate the protocol, each with the close code that fits. */
const violations: [string, Buffer[], number][] = [
  ["a reserved bit", [frame(0xc1, "a")], 1002],
  ["a reserved opcode", [frame(0x83, "a")], 1002],
  ["a fragmented ping", [frame(0x09, "a")], 1002],
  ["a continuation of nothing", [frame(0x80, "a")], 1002],
  ["a message inside of another", [frame(0x01, "a"), frame(0x81, "b")], 1002],
  ["a text that is not UTF-8", [frame(0x81, [0xff])], 1007],
  ["a reserved close code", [frame(0x88, [3, 237])], 1002],
];

/** What has become of a WebSocket whose client has sent some frames. */
interface Outcome {
  /** The bytes that the client received, to the end of its connection; undefined if it is still open. */
  received: Buffer | undefined;
  /** The messages that the upstream received. */
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

export const frames = {
  async "RFC 6455 §10.4: a message of a client that is far too large ends its WebSocket before it has come"(
    t: Tools,
  ): Promise<void> {
    rfc("6455-10.4-limits");
    // 2^40 bytes, of which one is sent.
    const head = Buffer.of(0x82, 0xff, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1);
    const { received, messages } = await send(t, [head]);
    expect([received !== undefined, messages]).toEqual([true, []]);
  },

  async "RFC 6455 §5: a malformed frame of a client ends its WebSocket, and is no message"(
    t: Tools,
  ): Promise<void> {
    rfc("6455-5.2-reserved", "6455-5.4-fragments", "6455-5.5-control", "6455-5.6-utf8");
    for (const [what, malformed] of violations) {
      const { received, messages } = await send(t, malformed);
      expect([received !== undefined, messages], what).toEqual([true, []]);
    }
  },

  async "RFC 6455 §5.1: a frame of a client that is not masked ends its WebSocket"(
    t: Tools,
  ): Promise<void> {
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

  async "RFC 6455 §5.5.2: a ping of a client is answered with a pong of the same data"(
    t: Tools,
  ): Promise<void> {
    rfc("6455-5.5.2-pong");
    const { received } = await send(t, [frame(0x89, "ping"), frame(0x88, [3, 232])]);
    expect(received).toEqual(Buffer.from([0x8a, 4, ...Buffer.from("ping"), 0x88, 2, 3, 232]));
  },
};
