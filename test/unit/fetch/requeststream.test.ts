import { describe, expect, test, vi } from "vitest";
import { StreamBody } from "../../../src/body/stream.ts";
import { toRequestStream } from "../../../src/fetch/requeststream.ts";
import { fakeScope } from "../../helpers/fakes.ts";

const LENGTH = 200_000;

/** Creates a byte stream like workerd's request bodies: a reader that brings no buffer gets chunks of 4096 bytes. */
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

/** Creates a stream of the same bytes that is not a byte stream. */
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

/** Creates a pipe like workerd's: when a write resolves, its chunk has been copied. */
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
  const body = toRequestStream(new StreamBody(stream), contentLength, {
    client: { createPipe },
    scope: fakeScope(),
    controller,
    isUploading: false,
    isSettled: false,
  });
  return { body, controller };
}

describe.each([
  ["bytes", undefined, byteStream, 5],
  ["bytes", LENGTH, byteStream, 1],
  ["anything", undefined, plainStream, LENGTH / 4000],
  ["anything", LENGTH, plainStream, LENGTH / 4000],
] as const)("an upload from a stream of %s with the length %s", (_, length, make, chunks) => {
  test("is forwarded completely, in chunks as large as its source can deliver", async () => {
    const lengths: number[] = [];
    for await (const chunk of upload(make(), length).body) {
      expect(chunk.every((byte) => byte === 7)).toBe(true);
      lengths.push(chunk.byteLength);
    }
    expect(lengths.reduce((sum, each) => sum + each, 0)).toBe(LENGTH);
    expect(lengths.length).toBeLessThanOrEqual(chunks);
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

test.each([undefined, LENGTH])(
  "an upload whose stream fails aborts the request, and reading the upload fails with a client error: length %s",
  async (length) => {
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
  },
);
