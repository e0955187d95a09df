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
  const reader = body.getReader();
  const read = async (): Promise<ReadableStreamReadResult<Uint8Array>> => {
    scope.pauseIdle(false);
    const result = await reader.read();
    scope.pauseIdle(true);
    if (result.done) {
      scope.end();
      stopRequestStream(attempt);
    }
    return result;
  };
  const fail = (thrown: unknown): ProxyError => {
    const error = scope.error ?? incomplete(thrown);
    scope.failed(error);
    scope.end();
    stopRequestStream(attempt);
    return error;
  };
  const cancel = async (reason: unknown): Promise<void> => {
    scope.end();
    abortFetch(attempt, reason);
    await reader.cancel(reason).catch(() => {});
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
