import { expect, test } from "vitest";
import { EventReader, type StreamEvent } from "../../../src/body/events.ts";
import { bytes } from "../../helpers/fakes.ts";

/** Reads a stream in chunks that end at these positions. */
function read(stream: Uint8Array, ...ends: number[]): StreamEvent[] {
  const reader = new EventReader();
  let at = 0;
  return [...ends, stream.length].flatMap((end) => reader.read(stream.subarray(at, (at = end))));
}

const message = (data: string): StreamEvent => ({ type: "message", data });

test.each<[stream: string, events: StreamEvent[]]>([
  ["data: a\n\n", [message("a")]],
  ["data:a\ndata: b\n\n", [message("a\nb")]],
  ["data:  a: b\r\n\r\ndata\r\n\r\n", [message(" a: b"), message("")]],
  ["event: x\rdata: a\r\rdata: b\r\r", [{ type: "x", data: "a" }, message("b")]],
  ["\uFEFFdata: ü\n\n", [message("ü")]],
  [": a comment\n\n:\n\nevent: x\n\nid: 1\nretry: 5\n\n", []],
  ["database: a\nevent: x\nDATA: b\n\n", []],
  ["data: a", []],
  ["data: a\n", []],
  ["event: x\nevent\ndata: a\n\n\n\n", [message("a")]],
])("reads the events of %j, however the stream is split into chunks", (text, events) => {
  const stream = bytes(text);
  for (let first = 0; first <= stream.length; first++) {
    for (let second = first; second <= stream.length; second++) {
      expect(read(stream, first, second), `${first}, ${second}`).toEqual(events);
    }
  }
});

test("an event is complete with the CR of its empty line, before it is known whether an LF follows", () => {
  const reader = new EventReader();
  expect(reader.read(bytes("data: a\r\n\r"))).toEqual([message("a")]);
  expect(reader.read(bytes("\ndata: b\r\n\r"))).toEqual([message("b")]);
});
