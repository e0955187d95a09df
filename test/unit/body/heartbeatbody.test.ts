import { afterEach, beforeEach, expect, test, vi } from "vitest";
import { EventReader, type StreamEvent } from "../../../src/body/events.ts";
import { HeartbeatBody } from "../../../src/body/heartbeatbody.ts";
import { ResponseBody } from "../../../src/body/responsebody.ts";
import type { Sink } from "../../../src/body/source.ts";
import { bytes, fakeScope } from "../../helpers/fakes.ts";

const INTERVAL = 1000;
const COMMENT = ":\n\n";

beforeEach(() => {
  vi.useFakeTimers({ toFake: ["setTimeout", "clearTimeout", "performance"] });
});
afterEach(() => {
  expect(vi.getTimerCount()).toBe(0);
  vi.useRealTimers();
});

interface Stream {
  readonly body: HeartbeatBody;
  readonly source: ResponseBody;
  /** The chunks that the client has got, and then `end` or `fail`. */
  readonly sent: string[];
  /** Whether the client takes chunks. */
  hasRoom: boolean;
  drain(): void;
}

/** Starts an event stream whose chunks the test writes. */
function open(): Stream {
  const source = new ResponseBody(fakeScope(), { pause() {}, resume() {}, cancel() {} });
  const body = new HeartbeatBody(source, INTERVAL);
  let waiting: (() => void) | undefined;
  const stream: Stream = {
    body,
    source,
    sent: [],
    hasRoom: true,
    drain() {
      stream.hasRoom = true;
      waiting?.();
    },
  };
  const sink: Sink = {
    write(chunk) {
      stream.sent.push(Buffer.from(chunk).toString("latin1"));
      return stream.hasRoom;
    },
    onDrain: (callback) => void (waiting = callback),
    end: () => void stream.sent.push("end"),
    fail: (reason) => void stream.sent.push(`fail ${String(reason)}`),
  };
  body.pipeTo(sink);
  return stream;
}

function eventsOf(text: string): StreamEvent[] {
  return new EventReader().read(bytes(text));
}

test("a silent stream gets a comment after each interval, and none while events arrive", () => {
  const { source, sent } = open();
  source.push(bytes("data: 1\n\n"));
  vi.advanceTimersByTime(INTERVAL - 1);
  source.push(bytes("data: 2\n\n"));
  vi.advanceTimersByTime(INTERVAL - 1);
  expect(sent).toEqual(["data: 1\n\n", "data: 2\n\n"]);
  vi.advanceTimersByTime(1);
  expect(sent.slice(2)).toEqual([COMMENT]);
  vi.advanceTimersByTime(2 * INTERVAL);
  source.push(bytes("data: 3\n\n"));
  source.end();
  vi.advanceTimersByTime(2 * INTERVAL);
  expect(sent.slice(2)).toEqual([COMMENT, COMMENT, COMMENT, "data: 3\n\n", "end"]);
});

const STREAMS = [
  "data: a\n\n: comment\nid: 1\ndata: b\n\n\ndata: c\n\n",
  "data: a\r\n\r\nevent: x\r\ndata: b\r\n\r\n\r\n",
  "data: a\r\rdata: b\r\r\ndata: c\n\r\n",
  "\r\n\ndata: a\n\n",
];

test.each(STREAMS)("a comment in %j changes no event, wherever the stream falls silent", (text) => {
  let comments = 0;
  for (let at = 0; at <= text.length; at++) {
    const { source, sent } = open();
    if (at > 0) source.push(bytes(text.slice(0, at)));
    vi.advanceTimersByTime(INTERVAL);
    if (at < text.length) source.push(bytes(text.slice(at)));
    source.end();
    const got = sent.slice(0, -1).join("");
    expect(eventsOf(got), `silent at ${at}`).toEqual(eventsOf(text));
    expect([text, text.slice(0, at) + COMMENT + text.slice(at)]).toContain(got);
    expect(got, "a comment within CRLF").not.toContain(`\r${COMMENT}`);
    if (got !== text) comments++;
  }
  expect(comments).toBeGreaterThan(1);
});

test.each(STREAMS)(
  "%j gets comments at the same places if it is split into single bytes",
  (text) => {
    const places = (send: (stream: Stream, begin: string) => void): number[] =>
      Array.from(text).flatMap((_, at) => {
        const stream = open();
        send(stream, text.slice(0, at));
        vi.advanceTimersByTime(INTERVAL);
        stream.body.cancel();
        return stream.sent.includes(COMMENT) ? [at] : [];
      });
    const whole = places(({ source }, begin) => begin !== "" && source.push(bytes(begin)));
    const single = places(({ source }, begin) => {
      for (const character of begin) source.push(bytes(character));
    });
    expect(single).toEqual(whole);
  },
);

test("a byte order mark after a comment is dropped, because it would be a part of the first line", () => {
  const mark = new Uint8Array([0xef, 0xbb, 0xbf]);
  const rest = bytes("data: a\n\n");
  for (const [first, second] of [
    [[], [...mark, ...rest]],
    [[...mark.subarray(0, 1)], [...mark.subarray(1), ...rest]],
    [[...mark.subarray(0, 2)], [...mark.subarray(2), ...rest]],
    [[...mark], [...rest]],
  ] as const) {
    for (const silent of [true, false]) {
      const { source, sent } = open();
      if (silent) vi.advanceTimersByTime(INTERVAL);
      for (const chunk of [first, second]) {
        if (chunk.length > 0) source.push(new Uint8Array(chunk));
      }
      source.end();
      const expected = silent
        ? `${COMMENT}data: a\n\n`
        : `${Buffer.from(mark).toString("latin1")}data: a\n\n`;
      expect(sent).not.toContain("");
      expect(sent.slice(0, -1).join("")).toBe(expected);
    }
  }
});

test("bytes that only resemble a byte order mark stay in the stream", () => {
  const { source, sent } = open();
  vi.advanceTimersByTime(INTERVAL);
  source.push(new Uint8Array([0xef, 0xbb]));
  source.push(new Uint8Array([0xbe, 0x0a]));
  source.end();
  expect(sent.join("")).toBe(`${COMMENT}\u00ef\u00bb\u00be\nend`);
});

test("a slow client gets no comment until it takes chunks again", () => {
  const stream = open();
  stream.hasRoom = false;
  stream.source.push(bytes("data: 1\n\n"));
  vi.advanceTimersByTime(3 * INTERVAL);
  expect(stream.sent).toEqual(["data: 1\n\n"]);
  stream.drain();
  // The comment itself may fill the client's buffer.
  stream.hasRoom = false;
  vi.advanceTimersByTime(3 * INTERVAL);
  expect(stream.sent.slice(1)).toEqual([COMMENT]);
  stream.drain();
  vi.advanceTimersByTime(INTERVAL);
  expect(stream.sent.slice(1)).toEqual([COMMENT, COMMENT]);
  stream.body.cancel();
});

test("after a failure, and after the client has disconnected, no comment is sent", () => {
  const failed = open();
  failed.source.fail(new Error("broken") as never);
  const left = open();
  left.body.cancel();
  vi.advanceTimersByTime(3 * INTERVAL);
  expect([failed.sent, left.sent]).toEqual([["fail Error: broken"], []]);
});

test("a body that is already complete gets no comment", () => {
  const source = new ResponseBody(fakeScope(), { pause() {}, resume() {}, cancel() {} });
  source.push(bytes("data: 1\n\n"));
  source.end();
  expect(new HeartbeatBody(source, INTERVAL).whole()).toEqual(bytes("data: 1\n\n"));
});
