import { describe, expect, test, vi } from "vitest";
import { StreamBody } from "../src/body/stream.ts";
import { toUpload } from "../src/fetch/upload.ts";
import { fakeRequest, fakeScope } from "./_fakes.ts";

const LENGTH = 200_000;

/** A byte stream with chunks of 4096 bytes for readers without a buffer, like workerd's request bodies. */
function byteStream(cancelled: (reason: unknown) => void = () => {}): ReadableStream<Uint8Array> {
  let left = LENGTH;
  return new ReadableStream({
    type: "bytes",
    autoAllocateChunkSize: 4096,
    pull(controller) {
      const request = controller.byobRequest as ReadableStreamBYOBRequest;
      const view = request.view as Uint8Array;
      const length = Math.min(left, view.byteLength);
      view.fill(7, 0, length);
      left -= length;
      if (length > 0) request.respond(length);
      else {
        controller.close();
        request.respond(0);
      }
    },
    cancel: cancelled,
  });
}

/** The same as a stream of anything. */
function plainStream(cancelled: (reason: unknown) => void = () => {}): ReadableStream<Uint8Array> {
  let left = LENGTH;
  return new ReadableStream({
    pull(controller) {
      controller.enqueue(new Uint8Array(4000).fill(7));
      left -= 4000;
      if (left === 0) controller.close();
    },
    cancel: cancelled,
  });
}

/** Like workerd's pipes: a chunk has been copied when its write resolves. */
const createPipe = (): TransformStream<Uint8Array, Uint8Array> =>
  new TransformStream({ transform: (chunk, controller) => controller.enqueue(chunk.slice()) });

function upload(
  stream: ReadableStream<Uint8Array>,
  contentLength?: number,
): {
  body: ReadableStream<Uint8Array>;
  controller: AbortController;
} {
  const controller = new AbortController();
  const body = toUpload(
    new StreamBody(stream),
    fakeRequest({ contentLength }),
    fakeScope(),
    controller,
    {
      createPipe,
    },
  );
  return { body, controller };
}

describe.each([
  ["bytes", undefined, byteStream, 5],
  ["bytes", LENGTH, byteStream, 1],
  ["anything", undefined, plainStream, LENGTH / 4000],
  ["anything", LENGTH, plainStream, LENGTH / 4000],
] as const)("a stream of %s, length %s", (_, length, make, pieces) => {
  test("is forwarded completely, in as few chunks as it arrives in", async () => {
    const lengths: number[] = [];
    for await (const piece of upload(make(), length).body) {
      expect(piece.every((byte) => byte === 7)).toBe(true);
      lengths.push(piece.byteLength);
    }
    expect(lengths.reduce((sum, each) => sum + each, 0)).toBe(LENGTH);
    expect(lengths.length).toBeLessThanOrEqual(pieces);
  });

  test("is cancelled when its consumer cancels", async () => {
    let reason: unknown;
    const { body } = upload(
      make((given) => (reason = given)),
      length,
    );
    await body.cancel("enough");
    await vi.waitFor(() => expect(reason).toBe("enough"));
  });
});

test.each([undefined, LENGTH])("a failing stream aborts the request first: %s", async (length) => {
  const { body, controller } = upload(
    new ReadableStream({
      type: "bytes",
      pull() {
        throw new Error("gone");
      },
    }),
    length,
  );
  await expect(body.getReader().read()).rejects.toMatchObject({ code: "http_request_error" });
  expect(controller.signal.aborted).toBe(true);
});
