import { ProxyError } from "../error.ts";
import { abortFetch, type FetchAttempt, stopRequestStream } from "./requeststream.ts";

/**
 * Returns a response body as a stream. The idle timeout runs while a chunk is awaited, the end of the body ends the
 * scope, and cancelling the stream aborts the fetch.
 * @param length the length that the response declares; undefined if it declares none, or `fetch` has decoded the body
 */
export function toResponseStream(
  body: ReadableStream<Uint8Array>,
  length: number | undefined,
  attempt: FetchAttempt,
): ReadableStream<Uint8Array> {
  const { scope } = attempt;
  const { createPipe } = attempt.client;
  const { signal } = attempt.controller;
  const reader = body.getReader();
  // An app in this process may ignore its signal, so that its body would never end.
  signal.addEventListener("abort", () => void reader.cancel(signal.reason).catch(() => {}));
  const read = async (): Promise<ReadableStreamReadResult<Uint8Array>> => {
    scope.pauseIdle(false);
    const result = await reader.read();
    scope.pauseIdle(true);
    // A read of a cancelled stream returns `done`, like the end of a complete stream.
    signal.throwIfAborted();
    if (result.done) {
      scope.end();
      stopRequestStream(attempt);
    }
    return result;
  };
  const fail = (thrown: unknown): ProxyError => {
    const error = scope.error ?? incomplete(thrown);
    // An abort without an error of the scope means that the stream was cancelled, which is no failure.
    if (scope.error !== undefined || !signal.aborted) scope.failed(error);
    scope.end();
    stopRequestStream(attempt);
    return error;
  };
  const cancel = (reason: unknown): void => {
    scope.end();
    abortFetch(attempt, reason);
  };
  if (createPipe !== undefined && length !== undefined) {
    const { readable, writable } = createPipe(length);
    const writer = writable.getWriter();
    // `closed` rejects when the server cancels the stream or the client disconnects. The next write would fail as well,
    // but the upstream may send its next chunk much later.
    writer.closed.catch(cancel);
    pumpResponse(read, writer).catch((thrown: unknown) =>
      writer.abort(fail(thrown)).catch(() => {}),
    );
    return readable;
  }
  return new ReadableStream<Uint8Array>(
    {
      async pull(sink) {
        try {
          const { done, value } = await read();
          if (done) sink.close();
          else sink.enqueue(value);
        } catch (thrown) {
          sink.error(fail(thrown));
        }
      },
      cancel,
    },
    { highWaterMark: 0 },
  );
}

async function pumpResponse(
  read: () => Promise<ReadableStreamReadResult<Uint8Array>>,
  writer: WritableStreamDefaultWriter<Uint8Array>,
): Promise<void> {
  for (let next = await read(); !next.done; next = await read()) await writer.write(next.value);
  await writer.close();
}

function incomplete(cause: unknown): ProxyError {
  return new ProxyError("http_response_incomplete", { message: "the upstream broke off", cause });
}
