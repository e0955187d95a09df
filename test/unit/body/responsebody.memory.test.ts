/** Chunks of a response body in pooled memory, which later chunks reuse, and in memory that several chunks share. */
import { expect, test, vi } from "vitest";
import { type ReadMemory, sharedMemory } from "../../../src/body/memory.ts";
import { ResponseBody } from "../../../src/body/responsebody.ts";
import { bytes, fakeScope } from "../../helpers/fakes.ts";
import { FakeSink } from "../../helpers/sink.ts";

const pooled = bytes("pooled");
const own = bytes("own");

function open(): { body: ResponseBody; released: Uint8Array[]; copyOut: ReturnType<typeof vi.fn> } {
  const released: Uint8Array[] = [];
  const copyOut = vi.fn((chunk: Uint8Array) => {
    released.push(chunk);
    return chunk.slice();
  });
  const readMemory: ReadMemory = {
    has: (chunk) => chunk === pooled,
    copyOut,
    release: (chunk) => void released.push(chunk),
  };
  const inlet = { pause() {}, resume() {}, cancel() {} };
  return { body: new ResponseBody(fakeScope(), inlet, undefined, readMemory), released, copyOut };
}

test.each([true, false])(
  "a sink that returns memory gets the pooled chunk without a copy (chunk arrived before `pipeTo`: %s)",
  (isBefore) => {
    const { body, released, copyOut } = open();
    const sink = new FakeSink("returned");
    if (isBefore) body.push(pooled);
    body.pipeTo(sink);
    if (!isBefore) body.push(pooled);
    expect(sink.chunks).toEqual([pooled]);
    expect(sink.chunks[0]).toBe(pooled);
    expect(copyOut).not.toHaveBeenCalled();
    expect(released).toEqual([]);
    sink.releases[0]?.();
    expect(released).toEqual([pooled]);
  },
);

test("a pooled chunk that could not be sent is not released", () => {
  const { body, released } = open();
  const sink = new FakeSink("returned");
  body.pipeTo(sink);
  body.push(pooled);
  sink.releases[0]?.(new Error("closed"));
  expect(released).toEqual([]);
});

test.each(["owned", "borrowed"] as const)(
  "a sink whose chunks are %s gets a copy of a pooled chunk",
  (memory) => {
    const { body, released } = open();
    const sink = new FakeSink(memory);
    body.push(pooled);
    body.pipeTo(sink);
    body.push(pooled);
    expect(sink.chunks).toEqual([pooled, pooled]);
    for (const chunk of sink.chunks) expect(chunk.buffer).not.toBe(pooled.buffer);
    expect(sink.releases).toEqual([undefined, undefined]);
    expect(released).toEqual([pooled, pooled]);
  },
);

test("a chunk with its own memory is not copied for any sink", () => {
  for (const memory of ["owned", "borrowed", "returned"] as const) {
    const { body, released } = open();
    const sink = new FakeSink(memory);
    body.pipeTo(sink);
    body.push(own);
    expect(sink.chunks[0]).toBe(own);
    expect(sink.releases).toEqual([undefined]);
    expect(released).toEqual([]);
  }
});

test("`whole` copies a pooled chunk, and releases it", () => {
  const { body, released } = open();
  body.push(pooled);
  body.end();
  const whole = body.whole();
  expect(whole).toEqual(pooled);
  expect(whole?.buffer).not.toBe(pooled.buffer);
  expect(released).toEqual([pooled]);
});

test("`stream` copies a pooled chunk, and releases it", async () => {
  const { body, released } = open();
  body.push(pooled);
  body.end();
  const { value } = await body.stream().getReader().read();
  expect(value).toEqual(pooled);
  expect(value?.buffer).not.toBe(pooled.buffer);
  expect(released).toEqual([pooled]);
});

/** Returns a body, and two chunks for it that are views of one ArrayBuffer. */
function openShared(): { body: ResponseBody; first: Uint8Array; second: Uint8Array } {
  const read = bytes("head first second");
  const inlet = { pause() {}, resume() {}, cancel() {} };
  const body = new ResponseBody(fakeScope(), inlet, undefined, sharedMemory);
  return { body, first: read.subarray(5, 10), second: read.subarray(11) };
}

test("a sink that transfers its chunks gets copies of chunks that share memory", () => {
  const { body, first, second } = openShared();
  const sink = new FakeSink("owned");
  body.push(first);
  body.pipeTo(sink);
  body.push(second);
  expect(sink.chunks).toEqual([bytes("first"), bytes("second")]);
  for (const { byteLength, buffer } of sink.chunks) expect(buffer.byteLength).toBe(byteLength);
});

test.each(["borrowed", "returned"] as const)(
  "a sink whose chunks are %s gets no copies of chunks that share memory",
  (memory) => {
    const { body, first, second } = openShared();
    const sink = new FakeSink(memory);
    body.push(first);
    body.pipeTo(sink);
    body.push(second);
    expect(sink.chunks[0]).toBe(first);
    expect(sink.chunks[1]).toBe(second);
    expect(sink.releases).toEqual([undefined, undefined]);
  },
);

test("`whole` copies a chunk that shares memory, unless its caller only reads the bytes", () => {
  const [owned, borrowed] = [openShared(), openShared()];
  for (const { body, first } of [owned, borrowed]) {
    body.push(first);
    body.end();
  }
  expect(borrowed.body.whole({ memory: "borrowed" })).toBe(borrowed.first);
  const whole = owned.body.whole();
  expect([whole, whole?.buffer.byteLength]).toEqual([bytes("first"), 5]);
});

test("`whole` copies a pooled chunk even for a caller that only reads the bytes", () => {
  const { body, released } = open();
  body.push(pooled);
  body.end();
  expect(body.whole({ memory: "borrowed" })?.buffer).not.toBe(pooled.buffer);
  expect(released).toEqual([pooled]);
});
