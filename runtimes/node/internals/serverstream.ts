/**
 * The web stream that srvx (also under h3) or @hono/node-server makes of a request's body.
 *
 * - Rests on: the server makes the stream when `body` is first read. From then on, the stream listens to Node's request:
 *   `readableFlowing` is no longer null, as it is at first, and there may be listeners for `data`.
 * - Check: `bodyOf` in nodeincoming.ts reads a body from Node's request, instead of the stream, only if the state of the
 *   request allows this. The listeners for `data` are compared before and after `body` is read.
 * - Otherwise: the body is read from the stream. If nothing reads the stream, the listeners that it has added are removed,
 *   so that the next request on the connection is read. If other code has read from Node's request before the stream was
 *   made, the request is refused.
 * - Test: test/runtimes/node/internals/serverstream.test.ts and test/runtimes/node/upload.late.test.ts.
 */
import type { BodySource } from "../../../src/body/source.ts";
import { StreamBody } from "../../../src/body/stream.ts";
import { alreadyRead, resumeAfter } from "../incomingbody.ts";
import type { NodeSide } from "./srvx.ts";

/** Declared here, because Node's types do not say that `isErrored` takes web streams. */
declare const process: {
  getBuiltinModule(name: "node:stream"): { isErrored(stream: ReadableStream): boolean };
};

/**
 * Returns a body that reads the web stream of a request.
 * @param length the length in bytes where it is known
 * @throws TypeError if other code has read from Node's request, and not through the web request
 */
export function streamedBodyOf(
  request: Request,
  { req, res, isFresh }: NodeSide,
  length: number | undefined,
): BodySource | null {
  const wasRead = req.readableDidRead;
  const before = req.listeners("data");
  const { body } = request;
  const added = req.listeners("data").filter((listener) => !before.includes(listener));
  if (res !== undefined) {
    resumeAfter(res, req, () => {
      // A stream that no code reads takes a few chunks, and then pauses Node's request: remove its listeners.
      if (body?.locked) return;
      for (const listener of added) req.off("data", listener as (chunk: unknown) => void);
    });
  }
  // A stream that was created just now lacks the data that other code has read before. It was created just now if it has
  // added listeners, or if the body of the web request was unused before. If Node's request was read to its end before, the
  // stream that srvx creates has already failed.
  const lacksData = isFresh || added.length > 0 || (req.readableEnded && isFailed(body));
  if (wasRead && lacksData) throw alreadyRead();
  return body && new StreamBody(body, length);
}

function isFailed(stream: ReadableStream | null): boolean {
  return stream !== null && process.getBuiltinModule("node:stream").isErrored(stream);
}
