import { beforeEach, describe, expect, test, vi } from "vitest";
import type { ReadMemory } from "../../../src/body/memory.ts";
import { type Inlet, ResponseBody } from "../../../src/body/responsebody.ts";
import type { Scope } from "../../../src/transport/scope.ts";
import { ProxyError } from "../../../src/error.ts";
import { bytes, fakeScope, proxyError } from "../../helpers/fakes.ts";
import { FakeSink } from "../../helpers/sink.ts";

const broken = new ProxyError("http_response_incomplete");

/** The transport's side of a body. Like a transport, it fails the body when the body asks it to stop. */
class FakeInlet implements Inlet {
  readonly log: string[] = [];
  body: ResponseBody | undefined;

  pause(): void {
    this.log.push("pause");
  }

  resume(): void {
    this.log.push("resume");
  }

  cancel(reason: ProxyError): void {
    this.log.push(`fail ${reason.status}`);
    this.body?.fail(reason);
  }
}

let scope: Scope;
let inlet: FakeInlet;
let body: ResponseBody;
let calls: string[];

function open(length?: number, readMemory?: ReadMemory): void {
  scope = fakeScope();
  calls = [];
  vi.spyOn(scope, "touch").mockImplementation(() => void calls.push("touch"));
  vi.spyOn(scope, "pauseIdle").mockImplementation(
    (isPaused) => void calls.push(`pause ${isPaused}`),
  );
  vi.spyOn(scope, "end").mockImplementation(() => void calls.push("end"));
  inlet = new FakeInlet();
  body = new ResponseBody(scope, inlet, length, readMemory);
  inlet.body = body;
}

beforeEach(() => open());

describe("a body that has arrived", () => {
  test("is available as bytes once it is complete", () => {
    body.push(bytes("ab"));
    expect(body.buffered).toBe(2);
    expect(body.whole()).toBeUndefined();
    body.push(bytes("c"));
    body.end();
    expect(body.whole()).toEqual(bytes("abc"));
    expect(body.buffered).toBe(0);
  });

  test("a body of one chunk is returned as that chunk, without a copy", () => {
    const chunk = bytes("abc");
    body.push(chunk);
    body.end();
    expect(body.whole({ joinUpTo: 0 })).toBe(chunk);
  });

  test("a body of several chunks over the limit for joining is not returned as bytes, and a sink gets its chunks", async () => {
    body.push(bytes("ab"));
    body.push(bytes("c"));
    body.end();
    expect(body.whole({ joinUpTo: 2 })).toBeUndefined();
    const sink = new FakeSink();
    body.pipeTo(sink);
    expect(sink.log).toEqual(["ab", "c", "end"]);
  });

  test("has its announced length and its trailer fields", async () => {
    open(3);
    expect(body.length).toBe(3);
    body.push(bytes("abc"));
    body.end(["x-sum", "1"]);
    expect(body.trailers).toEqual(["x-sum", "1"]);
    const sink = new FakeSink();
    body.pipeTo(sink);
    expect(sink.trailers).toEqual(["x-sum", "1"]);
  });

  test("can be read only once", async () => {
    body.push(bytes("abc"));
    body.end();
    body.whole();
    expect(() => body.whole()).toThrow(/already been taken/);
    expect(() => body.pipeTo(new FakeSink())).toThrow(TypeError);
    expect(() => body.stream()).toThrow(/already been taken/);
  });
});

describe("a body that is still arriving", () => {
  test("writes its chunks as they arrive, and ends the sink after the last", async () => {
    body.push(bytes("a"));
    const sink = new FakeSink();
    body.pipeTo(sink);
    expect(sink.log).toEqual(["a"]);
    body.push(bytes("b"));
    expect(sink.log).toEqual(["a", "b"]);
    body.end();
    expect(sink.log).toEqual(["a", "b", "end"]);
  });

  test("flushes the head if no chunk has arrived yet", () => {
    const sink = new FakeSink();
    body.pipeTo(sink);
    expect(sink.log).toEqual(["flush"]);
    body.end();
    expect(sink.log).toEqual(["flush", "end"]);
  });

  test("can be read as a stream", async () => {
    body.push(bytes("a"));
    const text = new Response(body.stream()).text();
    body.push(bytes("b"));
    body.end();
    expect(await text).toBe("ab");
  });

  test("restarts the idle timeout with each chunk, and stops it after the last", () => {
    body.push(bytes("a"));
    body.pipeTo(new FakeSink());
    body.push(bytes("b"));
    body.end();
    body.push(bytes("late"));
    expect(calls).toEqual(["touch", "touch", "end"]);
  });
});

describe("a slow client", () => {
  test("pauses reading from the upstream until the sink drains, and pauses the idle timeout", () => {
    const sink = new FakeSink();
    sink.hasRoom = false;
    body.pipeTo(sink);
    body.push(bytes("a"));
    expect(body.isPaused).toBe(true);
    // Chunks that were read before the pause are still written; they cause no second pause.
    body.push(bytes("b"));
    expect(sink.log).toEqual(["flush", "a", "b"]);
    expect(inlet.log).toEqual(["pause"]);
    expect(calls.filter((call) => call.startsWith("pause"))).toEqual(["pause true", "pause true"]);
    expect(sink.waiting).toBe(1);
    sink.drain();
    expect(inlet.log).toEqual(["pause", "resume"]);
    expect(body.isPaused).toBe(false);
    expect(calls.at(-1)).toBe("pause false");
    sink.hasRoom = false;
    body.push(bytes("c"));
    expect(inlet.log).toEqual(["pause", "resume", "pause"]);
  });

  test("that has not read the body pauses reading from the upstream after 64 KiB, and the idle timeout still runs", () => {
    body.push(new Uint8Array(65_535));
    expect(inlet.log).toEqual([]);
    body.push(new Uint8Array(1));
    body.push(new Uint8Array(1));
    expect(inlet.log).toEqual(["pause"]);
    expect(calls).not.toContain("pause true");
    body.pipeTo(new FakeSink());
    expect(inlet.log).toEqual(["pause", "resume"]);
  });

  test("while a client reads the buffered chunks slowly, reading from the upstream stays paused", () => {
    body.push(new Uint8Array(65_536));
    const sink = new FakeSink();
    sink.hasRoom = false;
    body.pipeTo(sink);
    expect(inlet.log).toEqual(["pause"]);
    sink.drain();
    expect(inlet.log).toEqual(["pause", "resume"]);
  });

  test("once the whole body has arrived, a slow client gets the rest, and reading from the upstream is not resumed", async () => {
    const sink = new FakeSink();
    sink.hasRoom = false;
    body.pipeTo(sink);
    body.push(bytes("a"));
    body.end();
    sink.drain();
    expect(inlet.log).toEqual(["pause"]);
    expect(sink.log).toEqual(["flush", "a", "end"]);
  });
});

describe("an upstream that breaks off", () => {
  test("an upstream that breaks off before the body is read fails the body", async () => {
    body.push(bytes("half"));
    body.fail(broken);
    expect(body.error).toBe(broken);
    expect(() => body.whole()).toThrow(broken);
    const sink = new FakeSink();
    body.pipeTo(sink);
    expect(sink.log).toEqual(["flush", `fail ${broken.message}`]);
    expect(sink.reason).toBe(broken);
    expect(calls).toEqual(["touch", "end"]);
  });

  test("an upstream that breaks off while the body is piped fails the sink, and nothing is written afterwards", async () => {
    const sink = new FakeSink();
    body.pipeTo(sink);
    body.push(bytes("half"));
    body.fail(broken);
    body.push(bytes("late"));
    body.end();
    body.fail(new ProxyError("proxy_internal_error"));
    expect(sink.log).toEqual(["flush", "half", `fail ${broken.message}`]);
    expect(body.error).toBe(broken);
  });

  test("an upstream that breaks off while the body is streamed fails the stream", async () => {
    const text = new Response(body.stream()).text();
    body.fail(broken);
    await expect(text).rejects.toBe(broken);
  });

  test("an upstream that breaks off after the end of the body changes nothing", () => {
    body.push(bytes("abc"));
    body.end();
    body.fail(broken);
    expect(body.error).toBeUndefined();
    expect(body.whole()).toEqual(bytes("abc"));
  });
});

describe("a cancelled body", () => {
  test("cancelling a body that is being piped stops the exchange, and the sink gets no further call", async () => {
    const sink = new FakeSink();
    body.pipeTo(sink);
    body.push(bytes("a"));
    body.cancel("enough");
    body.push(bytes("b"));
    expect(sink.log).toEqual(["flush", "a"]);
    expect(inlet.log).toEqual(["fail 499"]);
    expect(body.error).toEqual(proxyError("http_request_error", 499));
  });

  test("cancelling the stream of a body stops the exchange", async () => {
    await body.stream().cancel("enough");
    expect(inlet.log).toEqual(["fail 499"]);
  });
});

test("a body that fails while its first chunks are written fails the sink", async () => {
  body.push(bytes("a"));
  body.push(bytes("b"));
  const sink = new FakeSink();
  const write = sink.write.bind(sink);
  sink.write = (chunk) => {
    const hasRoom = write(chunk);
    body.fail(broken);
    return hasRoom;
  };
  body.pipeTo(sink);
  expect(sink.log).toEqual(["a", "fail http_response_incomplete"]);
});
