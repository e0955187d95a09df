import type { Scope } from "../exchange/scope.ts";
import { ProxyError } from "../error.ts";
import { stopUpload, type UploadClient } from "./requeststream.ts";

/**
 * Hands a response body on, and tells the scope of each chunk: its idle timeout counts from there.
 * @param length bytes of the body, where that is known
 * @param createPipe makes the stream that a response's length is known by, where a script's stream has none
 */
export function watch(
  body: ReadableStream<Uint8Array>,
  length: number | undefined,
  scope: Scope,
  controller: AbortController,
  createPipe: UploadClient["createPipe"],
): ReadableStream<Uint8Array> {
  const reader = body.getReader();
  const read = async (): Promise<ReadableStreamReadResult<Uint8Array>> => {
    scope.pauseIdle(false);
    const result = await reader.read();
    scope.pauseIdle(true);
    if (result.done) {
      scope.end();
      stopUpload(controller);
    }
    return result;
  };
  const fail = (thrown: unknown): ProxyError => {
    const error = scope.error ?? incomplete(thrown);
    scope.end();
    stopUpload(controller);
    return error;
  };
  const cancel = async (reason: unknown): Promise<void> => {
    scope.end();
    controller.abort(reason);
    await reader.cancel(reason).catch(() => {});
  };
  if (createPipe !== undefined && length !== undefined) {
    const { readable, writable } = createPipe(length);
    const writer = writable.getWriter();
    // The client does not want the rest, or has left: the next write would be the first to notice.
    writer.closed.catch(cancel);
    pump(read, writer).catch((thrown: unknown) => writer.abort(fail(thrown)).catch(() => {}));
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

async function pump(
  read: () => Promise<ReadableStreamReadResult<Uint8Array>>,
  writer: WritableStreamDefaultWriter<Uint8Array>,
): Promise<void> {
  for (let next = await read(); !next.done; next = await read()) await writer.write(next.value);
  await writer.close();
}

function incomplete(cause: unknown): ProxyError {
  return new ProxyError("http_response_incomplete", { message: "the upstream broke off", cause });
}
