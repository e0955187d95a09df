/** `ResumableBody`: the next attempt sends the bytes that the previous attempt has read, and then the rest. */
import { describe, expect, test, vi } from "vitest";
import { BytesBody } from "../../../src/body/bytes.ts";
import { ResponseBody } from "../../../src/body/responsebody.ts";
import { ResumableBody } from "../../../src/body/resumable.ts";
import type { BodySource, Sink } from "../../../src/body/source.ts";
import { StreamBody } from "../../../src/body/stream.ts";
import { WatchedBody } from "../../../src/body/watched.ts";
import { bytes, fakeScope, streamOf } from "../../helpers/fakes.ts";
import { FakeSink } from "../../helpers/sink.ts";

/** Returns a body that the test fills, the calls to its transport, and a `ResumableBody` that wraps it. */
function openBody(limit = 6): { source: ResponseBody; calls: string[]; body: ResumableBody } {
  const calls: string[] = [];
  const source = new ResponseBody(fakeScope(), {
    pause: () => void calls.push("pause"),
    resume: () => void calls.push("resume"),
    cancel: () => void calls.push("cancel"),
  });
  return { source, calls, body: new ResumableBody(source, limit) };
}

/** Pipes the body to a sink for one attempt. */
function attempt(body: BodySource, hasRoom = true, memory?: Sink["memory"]): FakeSink {
  const sink = new FakeSink(memory);
  sink.hasRoom = hasRoom;
  void body.pipeTo(sink);
  return sink;
}

describe("the next attempt", () => {
  test.each(["owned", "borrowed", "returned"] as const)(
    "sends what was read, and then the rest, to a sink whose memory is %s",
    (memory) => {
      const { source, body, calls } = openBody();
      const first = attempt(body, true, memory);
      source.push(bytes("ab"));
      body.cancel();
      if (memory === "owned") first.chunks[0]?.fill(0);
      const second = attempt(body, true, memory);
      if (memory === "owned") second.chunks[0]?.fill(0);
      source.push(bytes("cd"));
      body.cancel();
      const third = attempt(body, true, memory);
      source.push(bytes("efgh"));
      source.end(["x-sum", "1"]);
      const isTaken = expect.stringContaining("fail") as string;
      expect([first.log, second.log, third.log]).toEqual([
        ["flush", "ab", isTaken],
        ["ab", "cd", isTaken],
        ["ab", "cd", "efgh", "end"],
      ]);
      expect(third.trailers).toEqual(["x-sum", "1"]);
      expect(calls).not.toContain("cancel");
    },
  );

  test("resumes a waiting source only when its own sink has room", () => {
    const { source, body, calls } = openBody();
    const first = attempt(body, false);
    source.push(bytes("ab"));
    expect(calls).toEqual(["pause"]);
    body.cancel();
    // A late call by the sink of the ended attempt must not resume the source.
    first.drain();
    expect(calls).toEqual(["pause"]);
    const second = attempt(body, false);
    first.drain();
    expect([calls, second.waiting]).toEqual([["pause"], 1]);
    second.drain();
    expect(calls).toEqual(["pause", "resume"]);
  });

  test("gets the chunk that arrived between the attempts and made the source wait", () => {
    const { source, body, calls } = openBody(3);
    attempt(body);
    source.push(bytes("ab"));
    body.cancel();
    source.push(bytes("cdef"));
    expect([calls, body.isUntouched]).toEqual([["pause"], true]);
    expect(attempt(body).log).toEqual(["ab", "cdef"]);
    expect([calls, body.isUntouched]).toEqual([["pause", "resume"], false]);
  });

  test.each([
    ["end", "end", (source: ResponseBody) => source.end(["x-sum", "1"])],
    ["failure", "fail lost", (source: ResponseBody) => source.fail(new Error("lost") as never)],
  ])("gets the %s of the source that came between the attempts", (_, last, close) => {
    const { source, body } = openBody();
    attempt(body);
    source.push(bytes("ab"));
    body.cancel();
    close(source);
    const second = attempt(body);
    expect(second.log).toEqual(["ab", last]);
    if (last === "end") expect(second.trailers).toEqual(["x-sum", "1"]);
  });

  test("sends the body again, although an earlier attempt has sent all of it", async () => {
    const body = new ResumableBody(new StreamBody(streamOf(["ab", "c", ""])), 6);
    for (let i = 0; i < 3; i++) expect(await new Response(body.stream()).text()).toBe("abc");
  });

  test("sends the head immediately if no chunk has been read yet", () => {
    const { body } = openBody();
    attempt(body);
    body.cancel();
    expect(attempt(body).log).toEqual(["flush"]);
  });

  test("writes nothing more after the sink has ended the attempt during a write", () => {
    const { source, body } = openBody();
    attempt(body);
    source.push(bytes("ab"));
    source.push(bytes("cd"));
    body.cancel();
    const second = new FakeSink();
    const write = second.write.bind(second);
    second.write = (chunk) => (body.cancel(), write(chunk));
    body.pipeTo(second);
    expect(second.log).toEqual(["ab"]);
    expect(attempt(body).log).toEqual(["ab", "cd"]);
  });

  test.each([
    ["before", (body: BodySource) => body.cancel()],
    ["only after", () => {}],
  ])(
    "gets the whole body if an earlier attempt, which reads a web stream, ends %s its begin",
    async (_, end) => {
      const { source, body, calls } = openBody();
      const watched = new WatchedBody(body, { bodyOver() {} });
      const early = watched.stream().getReader();
      source.push(bytes("ab"));
      end(watched);
      const later = attempt(body);
      await early.cancel().catch(() => {});
      source.push(bytes("cd"));
      expect([later.log, calls]).toEqual([["ab", "cd"], []]);
    },
  );
});

describe("no other attempt can send the body", () => {
  test("after more bytes than the limit: then `cancel` cancels the source", () => {
    const { source, body, calls } = openBody();
    const sink = attempt(body);
    source.push(bytes("abcdef"));
    expect(body.isUntouched).toBe(true);
    source.push(bytes("g"));
    expect([body.isUntouched, sink.log]).toEqual([false, ["flush", "abcdef", "g"]]);
    body.cancel();
    expect(calls).toEqual(["cancel"]);
    expect(attempt(body).log).toEqual([expect.stringContaining("fail")]);
  });

  test("after `settle`, which cancels the source only if the last attempt has cancelled the body", () => {
    const running = openBody();
    const sink = attempt(running.body);
    running.source.push(bytes("ab"));
    running.body.settle();
    running.source.push(bytes("cd"));
    expect([running.calls, sink.log]).toEqual([[], ["flush", "ab", "cd"]]);
    running.body.cancel();
    expect(running.calls).toEqual(["cancel"]);

    const parked = openBody();
    attempt(parked.body);
    parked.body.cancel();
    expect(parked.calls).toEqual([]);
    parked.body.settle();
    expect([parked.calls, parked.body.isUntouched]).toEqual([["cancel"], false]);

    const resumed = openBody();
    attempt(resumed.body);
    resumed.body.cancel();
    attempt(resumed.body);
    resumed.body.settle();
    expect(resumed.calls).toEqual([]);
  });
});

test("a body that has arrived as a whole is kept without a copy, up to the limit", () => {
  const given = bytes("abc");
  const body = new ResumableBody(new BytesBody(given), 3);
  expect([body.whole(), body.replay, body.length]).toEqual([given, given, 3]);
  const pushed = openBody(2);
  pushed.source.push(bytes("abc"));
  pushed.source.end();
  expect(pushed.body.whole()).toEqual(given);
  expect([pushed.body.replay, pushed.body.isUntouched]).toEqual([undefined, false]);
});

test("only the memory of chunks that are not kept is released", () => {
  const source = new StreamBody(streamOf([]));
  let given: Sink | undefined;
  source.pipeTo = async (sink) => void (given = sink);
  const body = new ResumableBody(source, 3);
  const sink = attempt(body, true, "returned");
  const release = vi.fn();
  expect(given?.memory).toBe("borrowed");
  given?.write(bytes("abcd"));
  expect(given?.memory).toBe("returned");
  given?.write(bytes("e"), release);
  expect(sink.releases).toEqual([undefined, release]);
});
