import { expect, test, vi } from "vitest";
import { BytesBody } from "../src/body/bytes.ts";
import { type BodySource, pipe, type Sink } from "../src/body/source.ts";
import { toWebStream } from "../src/body/web.ts";
import { bytes, errorOf } from "./_fakes.ts";
import { FakeSink } from "./_sink.ts";

/** A body of an app's own. */
function bodyThat(pipeTo: BodySource["pipeTo"]): BodySource {
  return {
    whole: () => undefined,
    pipeTo,
    stream() {
      return toWebStream(this);
    },
    cancel() {},
  };
}

const rejecting = bodyThat(async (sink) => {
  sink.write(bytes("abc"));
  throw new Error("torn");
});
const throwing = bodyThat(() => {
  throw new Error("torn");
});

test.each([
  ["rejects", rejecting, ["abc", "fail torn"]],
  ["throws", throwing, ["fail torn"]],
])("a sink is told where `pipeTo` %s", async (_, body, log) => {
  const sink = new FakeSink();
  pipe(body, sink);
  await vi.waitFor(() => expect(sink.log).toEqual(log));
});

test("a web stream fails where `pipeTo` rejects", async () => {
  const error = await errorOf(() => new Response(rejecting.stream()).text());
  expect((error as Error).message).toMatch(/torn/);
});

test("where `pipeTo` throws, so does the call that asks for the stream", () => {
  expect(() => throwing.stream()).toThrow("torn");
});

test("pipe takes the way without promises, where a body has one, and tells the sink what that throws", () => {
  const sink = new FakeSink();
  const feed = vi.fn((to: Sink) => to.end());
  const body = Object.assign(new BytesBody(new Uint8Array(1)), { feed });
  pipe(body, sink);
  expect(feed).toHaveBeenCalledExactlyOnceWith(sink);
  expect(sink.log).toEqual(["end"]);
  feed.mockImplementation(() => {
    throw new Error("taken");
  });
  const other = new FakeSink();
  pipe(body, other);
  expect(other.log).toEqual(["fail taken"]);
});
