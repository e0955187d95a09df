import { expect, test, vi } from "vitest";
import type { BodySource, Sink } from "../../../src/body/source.ts";
import { toWebStream } from "../../../src/body/web.ts";
import { bytes, errorOf } from "../../helpers/fakes.ts";

/** Creates a body. The test itself writes to the sink that the body's web stream passes to `pipeTo`. */
function byHand(): { source: BodySource; sink: () => Sink; cancel: ReturnType<typeof vi.fn> } {
  let sink: Sink | undefined;
  const cancel = vi.fn();
  const source: BodySource = {
    whole: () => undefined,
    pipeTo: (given) => {
      sink = given;
      return new Promise(() => {});
    },
    stream: () => toWebStream(source),
    cancel,
  };
  return { source, sink: () => sink as Sink, cancel };
}

test("the web stream delivers the body's chunks and its end", async () => {
  const { source, sink } = byHand();
  const text = new Response(toWebStream(source)).text();
  sink().write(bytes("ab"));
  sink().write(bytes("c"));
  sink().end();
  expect(await text).toBe("abc");
});

test("the web stream buffers 64 KiB, and takes more only when its reader has read", async () => {
  const { source, sink } = byHand();
  const reader = toWebStream(source).getReader();
  expect(sink().write(new Uint8Array(65_535))).toBe(true);
  expect(sink().write(new Uint8Array(1))).toBe(false);
  const hasRoom = vi.fn();
  sink().onDrain(hasRoom);
  expect(sink().write(new Uint8Array(1))).toBe(false);
  await new Promise((resolve) => setImmediate(resolve));
  expect(hasRoom).not.toHaveBeenCalled();
  await reader.read();
  await vi.waitFor(() => expect(hasRoom).toHaveBeenCalledOnce());
  // The sink calls `hasRoom` only once for each call of `onDrain`.
  await reader.read();
  await reader.read();
  expect(hasRoom).toHaveBeenCalledOnce();
});

test("the web stream of a failed body fails with the body's error, or without a reason if `quiet` is set", async () => {
  for (const [quiet, expected] of [
    [false, "broken"],
    [true, undefined],
  ] as const) {
    const { source, sink } = byHand();
    const order: string[] = [];
    const onFail = (): unknown => order.push("onFail");
    const reader = toWebStream(source, { quiet, onFail }).getReader();
    const failed = errorOf(() => reader.read()).then((error) => {
      order.push("failed");
      return error;
    });
    sink().fail(new Error("broken"));
    expect((await failed) as Error | undefined).toEqual(expected && new Error(expected));
    expect(order).toEqual(["onFail", "failed"]);
  }
});

test("with the option `flush`, the web stream begins with an empty chunk when its sink is flushed", async () => {
  for (const flush of [true, false]) {
    const { source, sink } = byHand();
    const reader = toWebStream(source, { flush }).getReader();
    sink().flush?.();
    sink().write(bytes("a"));
    expect((await reader.read()).value?.byteLength).toBe(flush ? 0 : 1);
  }
});

test("cancelling the web stream cancels the body, and later chunks are ignored", async () => {
  const { source, sink, cancel } = byHand();
  const onFail = vi.fn();
  await toWebStream(source, { flush: true, onFail }).cancel("enough");
  expect(cancel).toHaveBeenCalledExactlyOnceWith("enough");
  expect(sink().write(new Uint8Array(100_000))).toBe(true);
  sink().flush?.();
  sink().end();
  sink().fail(new Error("late"));
  expect(onFail).not.toHaveBeenCalled();
});

test("the chunks of the web stream belong to its reader, which may transfer them", () => {
  const { source, sink } = byHand();
  toWebStream(source);
  expect(sink().memory ?? "owned").toBe("owned");
});
