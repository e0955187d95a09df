import { expect, test, vi } from "vitest";
import { BytesBody } from "../../../src/body/bytes.ts";
import { type BodySource, pipe } from "../../../src/body/source.ts";
import { toWebStream } from "../../../src/body/web.ts";
import { bytes, errorOf } from "../../helpers/fakes.ts";
import { FakeSink } from "../../helpers/sink.ts";

/** Creates a body that an app implements itself, with this `pipeTo`. */
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
])("`pipe` fails the sink when the body's `pipeTo` %s", async (_, body, log) => {
  const sink = new FakeSink();
  pipe(body, sink);
  await vi.waitFor(() => expect(sink.log).toEqual(log));
});

test("the web stream of a body fails when the body's `pipeTo` rejects", async () => {
  const error = await errorOf(() => new Response(rejecting.stream()).text());
  expect((error as Error).message).toMatch(/torn/);
});

test("`stream()` of a body throws when the body's `pipeTo` throws", () => {
  expect(() => throwing.stream()).toThrow("torn");
});

test("`pipe` writes the bytes of a BytesBody to the sink, and ends it", () => {
  const sink = new FakeSink();
  pipe(new BytesBody(bytes("abc")), sink);
  expect(sink.log).toEqual(["abc", "end"]);
});
