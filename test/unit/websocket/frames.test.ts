import type { Writable } from "node:stream";
import fc from "fast-check";
import { describe, expect, test, vi } from "vitest";
import * as ws from "ws";
import { concat } from "../../../src/body/memory.ts";
import {
  CloseCode,
  type FrameHandler,
  FrameReader,
  isCloseCode,
  Opcode,
  writeClose,
  writeFrame,
} from "../../../src/websocket/frames.ts";
import { rfc } from "../../conformance/rfc.ts";

type Event = [string, ...unknown[]];

class Recorder implements FrameHandler {
  readonly events: Event[] = [];
  onMessage(data: string | Uint8Array): void {
    this.events.push(["message", typeof data === "string" ? data : [...data]]);
  }
  onPing(payload: Uint8Array): void {
    this.events.push(["ping", [...payload]]);
  }
  onPong(payload: Uint8Array): void {
    this.events.push(["pong", [...payload]]);
  }
  onCloseFrame(code: number | undefined, reason: string): void {
    this.events.push(["close", code, reason]);
  }
  onViolation(code: number): void {
    this.events.push(["violation", code]);
  }
}

/** A frame of a server, which is not masked. */
function frame(first: number, payload: Uint8Array | string | number[]): Uint8Array {
  const bytes =
    typeof payload === "string" ? new TextEncoder().encode(payload) : Uint8Array.from(payload);
  const { length } = bytes;
  const size =
    length < 126
      ? [length]
      : length < 65_536
        ? [126, length >> 8, length & 0xff]
        : [
            127,
            0,
            0,
            0,
            0,
            (length >>> 24) & 0xff,
            (length >> 16) & 0xff,
            (length >> 8) & 0xff,
            length & 0xff,
          ];
  return Uint8Array.from([first, ...size, ...bytes]);
}

function read(chunks: Uint8Array[], maxMessage = 1 << 20): Event[] {
  const recorder = new Recorder();
  const reader = new FrameReader(recorder, maxMessage);
  for (const chunk of chunks) reader.feed(chunk);
  return recorder.events;
}

/** Reads frames with ws, as a client does. */
async function readByWs(chunks: Uint8Array[], maxPayload: number): Promise<Event[]> {
  const events: Event[] = [];
  const options = { isServer: false, maxPayload, extensions: {}, allowSynchronousEvents: true };
  const receiver = new (ws as unknown as { Receiver: new (o: object) => Writable }).Receiver(
    options,
  );
  receiver
    .on("message", (data: Buffer, isBinary: boolean) =>
      events.push(["message", isBinary ? [...data] : data.toString()]),
    )
    .on("ping", (data: Buffer) => events.push(["ping", [...data]]))
    .on("pong", (data: Buffer) => events.push(["pong", [...data]]))
    .on("conclude", (code: number, reason: Buffer) =>
      events.push(["close", code === 1005 ? undefined : code, reason.toString()]),
    )
    .on("error", (error: object) => {
      const [code] = Object.getOwnPropertySymbols(error);
      events.push(["violation", (error as Record<symbol, unknown>)[code as symbol]]);
    });
  for (const chunk of chunks) if (receiver.writable) receiver.write(Buffer.from(chunk));
  await new Promise((resolve) => setImmediate(resolve));
  return events;
}

const FIN = 0x80;

describe("reading WebSocket frames", () => {
  test("the examples of RFC 6455 §5.7 are read", () => {
    expect(read([Uint8Array.from([0x81, 5, 0x48, 0x65, 0x6c, 0x6c, 0x6f])])).toEqual([
      ["message", "Hello"],
    ]);
    const fragments = [
      Uint8Array.from([1, 3, 0x48, 0x65, 0x6c]),
      Uint8Array.from([0x80, 2, 0x6c, 0x6f]),
    ];
    expect(read(fragments)).toEqual([["message", "Hello"]]);
    expect(read([Uint8Array.from([0x89, 5, 0x48, 0x65, 0x6c, 0x6c, 0x6f])])).toEqual([
      ["ping", [0x48, 0x65, 0x6c, 0x6c, 0x6f]],
    ]);
  });

  test.each([0, 1, 125, 126, 127, 65_535, 65_536, 70_000])(
    "a binary message of %i bytes is read",
    (length) => {
      const bytes = Uint8Array.from({ length }, (_, i) => i % 251);
      expect(read([frame(FIN | Opcode.binary, bytes)])).toEqual([["message", [...bytes]]]);
    },
  );

  test("control frames between fragments are read immediately", () => {
    rfc("6455-5.4-fragments");
    const frames = [
      frame(Opcode.text, "a"),
      frame(FIN | Opcode.ping, "p"),
      frame(Opcode.continuation, ""),
      frame(FIN | Opcode.pong, ""),
      frame(FIN | Opcode.continuation, "b"),
    ];
    expect(read(frames)).toEqual([
      ["ping", [112]],
      ["pong", []],
      ["message", "ab"],
    ]);
  });

  test("a character may be split between fragments", () => {
    const [first, second] = [frame(Opcode.text, [0xc3]), frame(FIN, [0xa4])];
    expect(read([first, second])).toEqual([["message", "ä"]]);
  });

  test("a byte order mark at the start of a text is kept", () => {
    expect(read([frame(FIN | Opcode.text, "\ufeffa")])).toEqual([["message", "\ufeffa"]]);
  });

  test("bytes may be split into chunks anywhere", () => {
    const message = fc.record({
      isText: fc.boolean(),
      fragments: fc.array(fc.string({ unit: "grapheme", maxLength: 200 }), {
        minLength: 1,
        maxLength: 4,
      }),
    });
    const cases = fc.tuple(
      fc.array(message, { maxLength: 5 }),
      fc.array(fc.nat(), { maxLength: 20 }),
    );
    fc.assert(
      fc.property(cases, ([messages, cuts]) => {
        const frames = messages.flatMap(({ isText, fragments }) =>
          fragments.map((text, i) =>
            frame(
              (i === fragments.length - 1 ? FIN : 0) |
                (i > 0 ? Opcode.continuation : isText ? Opcode.text : Opcode.binary),
              text,
            ),
          ),
        );
        const all = concat(frames);
        const ends = cuts.map((cut) => cut % (all.length + 1)).toSorted((a, b) => a - b);
        const chunks = [...ends, all.length].map((end, i) => all.slice(ends[i - 1] ?? 0, end));
        expect(read(chunks)).toEqual(
          messages.map(({ isText, fragments }) => {
            const text = fragments.join("");
            return ["message", isText ? text : [...new TextEncoder().encode(text)]];
          }),
        );
      }),
    );
  });

  test("a message may have any number of fragments", () => {
    const fragments = concat(Array<Uint8Array>(300_000).fill(frame(Opcode.continuation, "a")));
    const recorder = new Recorder();
    const reader = new FrameReader(recorder, 1 << 20);
    reader.feed(frame(Opcode.text, ""));
    reader.feed(fragments);
    reader.feed(frame(FIN | Opcode.continuation, "b"));
    expect(recorder.events).toEqual([["message", `${"a".repeat(300_000)}b`]]);
  });

  test("an announced length takes no memory before its bytes arrive", () => {
    // The head of a message of 16 MiB, and its first byte.
    const head = Uint8Array.of(FIN | Opcode.binary, 127, 0, 0, 0, 0, 1, 0, 0, 0, 1);
    const before = process.memoryUsage().arrayBuffers;
    const readers = Array.from({ length: 20 }, () => new FrameReader(new Recorder(), 1 << 24));
    for (const reader of readers) reader.feed(head);
    expect(process.memoryUsage().arrayBuffers - before).toBeLessThan(1 << 24);
    expect(readers.some(({ isOver }) => isOver)).toBe(false);
  });

  test("frames are read as the library ws reads them", async () => {
    const payload = fc.oneof(
      fc.uint8Array({ maxLength: 130 }),
      fc.string({ unit: "grapheme", maxLength: 40 }).map((text) => new TextEncoder().encode(text)),
      fc.constantFrom(
        ...[999, 1000, 1005, 1014, 3000, 5000].map((code) => [code >> 8, code & 255]),
      ),
    );
    // Most frames are well-formed, because reading stops at a malformed one.
    const first = fc.oneof(
      {
        weight: 20,
        arbitrary: fc.constantFrom(0x00, 0x80, 0x01, 0x81, 0x02, 0x82, 0x89, 0x8a, 0x88),
      },
      { weight: 1, arbitrary: fc.nat(255) },
    );
    const sequence = fc.array(fc.tuple(first, payload), { minLength: 1, maxLength: 8 });
    const check = fc.asyncProperty(
      sequence,
      fc.integer({ min: 1, max: 50 }),
      async (frames, size) => {
        const all = concat(frames.map(([head, bytes]) => frame(head, [...bytes])));
        const chunks: Uint8Array[] = [];
        for (let at = 0; at < all.length; at += size) chunks.push(all.slice(at, at + size));
        expect(read(chunks, 300)).toEqual(await readByWs(chunks, 300));
      },
    );
    await fc.assert(check, { numRuns: 500 });
  });

  test("a message does not change if its chunk is overwritten afterwards", () => {
    const recorder = new Recorder();
    const reader = new FrameReader(recorder, 100);
    const all = frame(FIN | Opcode.text, "hello");
    for (const cut of [1, 4]) {
      const chunk = all.slice(cut === 1 ? 0 : 1, cut);
      reader.feed(chunk);
      chunk.fill(0xff);
    }
    reader.feed(all.slice(4));
    expect(recorder.events).toEqual([["message", "hello"]]);
  });

  test("a close frame has a code and a reason, or neither", () => {
    expect(read([frame(FIN | Opcode.close, [])])).toEqual([["close", undefined, ""]]);
    expect(read([frame(FIN | Opcode.close, [3, 232, 98, 121, 101])])).toEqual([
      ["close", 1000, "bye"],
    ]);
  });

  test("nothing is read after a close frame", () => {
    expect(read([frame(FIN | Opcode.close, []), frame(FIN | Opcode.text, "a")])).toHaveLength(1);
  });
});

describe("violations of the WebSocket protocol", () => {
  const cases: [string, Uint8Array[], number][] = [
    ["a reserved bit", [frame(FIN | 0x40 | Opcode.text, "a")], CloseCode.protocolError],
    ["a reserved opcode for data", [frame(FIN | 3, "")], CloseCode.protocolError],
    ["a reserved control opcode", [frame(FIN | 11, "")], CloseCode.protocolError],
    ["a masked frame", [Uint8Array.from([0x81, 0x81, 0, 0, 0, 0, 97])], CloseCode.protocolError],
    ["a fragmented ping", [frame(Opcode.ping, "")], CloseCode.protocolError],
    ["a ping of 126 bytes", [frame(FIN | Opcode.ping, "x".repeat(126))], CloseCode.protocolError],
    ["a continuation without a first frame", [frame(FIN, "a")], CloseCode.protocolError],
    [
      "a message inside of another",
      [frame(Opcode.text, "a"), frame(FIN | Opcode.text, "b")],
      CloseCode.protocolError,
    ],
    ["a text that is not UTF-8", [frame(FIN | Opcode.text, [0xff])], CloseCode.invalidData],
    [
      "a character that is cut by the end",
      [frame(FIN | Opcode.text, [0xc3])],
      CloseCode.invalidData,
    ],
    ["half a close code", [frame(FIN | Opcode.close, [3])], CloseCode.protocolError],
    ["a reserved close code", [frame(FIN | Opcode.close, [3, 237])], CloseCode.protocolError],
    [
      "a reason that is not UTF-8",
      [frame(FIN | Opcode.close, [3, 232, 0xff])],
      CloseCode.invalidData,
    ],
    ["a message over the limit", [frame(FIN | Opcode.text, "x".repeat(101))], CloseCode.tooLarge],
    [
      "fragments that exceed the limit together",
      [frame(Opcode.text, "x".repeat(60)), frame(FIN, "x".repeat(41))],
      CloseCode.tooLarge,
    ],
    [
      "a length of 2^63",
      [Uint8Array.from([0x82, 127, 0x80, 0, 0, 0, 0, 0, 0, 0])],
      CloseCode.tooLarge,
    ],
  ];

  test.each(cases)(
    "%s is reported with its close code, and nothing after it is read",
    (_, chunks, code) => {
      rfc("6455-5.1-mask-checked", "6455-5.2-reserved", "6455-5.4-fragments", "6455-5.6-utf8");
      rfc("6455-7.4.1-reserved-codes", "6455-10.4-limits");
      const events = read([...chunks, frame(FIN | Opcode.text, "after")], 100);
      expect(events).toEqual([["violation", code]]);
    },
  );

  test("the close codes that may be sent are the registered ones up to 1014, and 3000 to 4999 (RFC 6455 §7.4)", () => {
    rfc("6455-7.4.1-reserved-codes");
    const sendable = Array.from({ length: 6000 }, (_, code) => code).filter(isCloseCode);
    expect(sendable.slice(0, 12)).toEqual([
      1000, 1001, 1002, 1003, 1007, 1008, 1009, 1010, 1011, 1012, 1013, 1014,
    ]);
    expect(sendable[12]).toBe(3000);
    expect(sendable.at(-1)).toBe(4999);
  });
});

describe("writing WebSocket frames", () => {
  function unmask(bytes: Uint8Array): { first: number; payload: number[] } {
    const short = (bytes[1] as number) & 0x7f;
    expect((bytes[1] as number) & 0x80).toBe(0x80);
    const at = short < 126 ? 2 : short === 126 ? 4 : 10;
    const mask = bytes.subarray(at, at + 4);
    const payload = [...bytes.subarray(at + 4)].map((byte, i) => byte ^ (mask[i % 4] as number));
    return { first: bytes[0] as number, payload };
  }

  test.each([0, 1, 125, 126, 65_535, 65_536])(
    "a payload of %i bytes is masked, and has the shortest length field",
    (length) => {
      rfc("6455-5.1-masked", "6455-5.2-shortest-length");
      const payload = Uint8Array.from({ length }, (_, i) => i % 253);
      const written = writeFrame(Opcode.binary, payload);
      const head = length < 126 ? 2 : length < 65_536 ? 4 : 10;
      expect(written).toHaveLength(head + 4 + length);
      expect(unmask(written)).toEqual({ first: FIN | Opcode.binary, payload: [...payload] });
      expect(payload[1] ?? 1).toBe(1);
    },
  );

  test("each frame has its own unpredictable mask", () => {
    rfc("6455-5.3-fresh-mask");
    const random = vi.spyOn(crypto, "getRandomValues");
    const masks = Array.from({ length: 20 }, () =>
      writeFrame(Opcode.ping, new Uint8Array(0)).join(),
    );
    expect(new Set(masks).size).toBeGreaterThan(15);
    expect(random).toHaveBeenCalledTimes(20);
    random.mockRestore();
  });

  test("payloads of all lengths and places in memory are masked", () => {
    const bytes = Uint8Array.from({ length: 70_000 }, (_, i) => i % 251);
    for (const length of [0, 1, 2, 3, 4, 5, 7, 8, 125, 126, 127, 65_535, 65_536, 65_539]) {
      for (const start of [0, 1, 3]) {
        const payload = bytes.subarray(start, start + length);
        expect(unmask(writeFrame(Opcode.binary, payload)).payload).toEqual([...payload]);
      }
    }
    expect(bytes[250]).toBe(250);
  });

  test("a close frame has its code, and as much of its reason as fits", () => {
    rfc("6455-5.5-control");
    expect(unmask(writeClose(undefined)).payload).toEqual([]);
    expect(unmask(writeClose(1001, "bye")).payload).toEqual([3, 233, 98, 121, 101]);
    const { payload } = unmask(writeClose(4000, "ä".repeat(100)));
    expect(payload).toHaveLength(124);
    expect(
      new TextDecoder("utf-8", { fatal: true }).decode(Uint8Array.from(payload.slice(2))),
    ).toBe("ä".repeat(61));
  });
});
