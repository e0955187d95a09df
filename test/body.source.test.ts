import { expect, test, vi } from "vitest";
import { BytesBody } from "../src/body/bytes.ts";
import { type BodySource, pipe } from "../src/body/source.ts";
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
])("a sink is failed if `pipeTo` %s", async (_, body, log) => {
  const sink = new FakeSink();
  pipe(body, sink);
  await vi.waitFor(() => expect(sink.log).toEqual(log));
});

test("a web stream fails if `pipeTo` rejects", async () => {
  const error = await errorOf(() => new Response(rejecting.stream()).text());
  expect((error as Error).message).toMatch(/torn/);
});

test("`stream()` throws if `pipeTo` throws", () => {
  expect(() => throwing.stream()).toThrow("torn");
});

test("a body whose `pipeTo` returns no promise is piped", () => {
  const sink = new FakeSink();
  pipe(new BytesBody(bytes("abc")), sink);
  expect(sink.log).toEqual(["abc", "end"]);
});
