import type { Http2ServerResponse, OutgoingHttpHeaders, ServerHttp2Stream } from "node:http2";
import { type BodySource, pipe, type Sink } from "../../src/body/source.ts";
import type { HeaderList } from "../../src/fields/headers.ts";
import { sendFieldObject, sendFields, toRegularFields } from "../sockets/http2/http2fields.ts";

/** The error code for a fault that is not the client's (RFC 9113 §7). */
const INTERNAL_ERROR = 2;

/**
 * Sends a response directly on the HTTP/2 stream of Node's response. The methods of Node's response cannot send a response that
 * consists of a single HEADERS frame, which is how gRPC sends errors.
 * @throws ProxyError, or the error of `stream.respond`, for fields that a hook has made invalid
 */
export function sendOnStream(
  res: Http2ServerResponse,
  status: number,
  headers: HeaderList,
  body: BodySource | null,
): void {
  const { stream } = res;
  if (stream.destroyed || stream.headersSent) return body?.cancel();
  const bytes = body?.error === undefined ? body?.whole() : undefined;
  const isWhole = body === null || bytes !== undefined;
  const trailers = isWhole ? (body?.trailers ?? []) : [];
  const endStream = isWhole && trailers.length === 0 && (bytes?.byteLength ?? 0) === 0;
  const waitForTrailers = !isWhole || trailers.length > 0;
  try {
    const list = [":status", String(status), ...toRegularFields(headers)];
    sendFields(withLength(list, headers), (fields) =>
      stream.respond(fields as OutgoingHttpHeaders, { endStream, waitForTrailers }),
    );
  } catch (error) {
    body?.cancel();
    throw error;
  }
  // Node ends the stream itself where the request or the status allows no body.
  if (endStream || stream.writableEnded) return isWhole ? undefined : body.cancel();
  const sink = new Http2StreamSink(stream, trailers);
  if (bytes !== undefined) return void stream.end(bytes);
  if (body?.buffered === undefined) stream.on("close", () => body?.cancel());
  pipe(body as BodySource, sink);
}

/**
 * Adds the response's `content-length`, which `toRegularFields` has dropped, to a list; a response to HEAD has the field as
 * well.
 */
function withLength(list: HeaderList, headers: HeaderList): HeaderList {
  for (let i = 0; i < headers.length; i += 2) {
    if ((headers[i] as string).toLowerCase() !== "content-length") continue;
    list.push("content-length", headers[i + 1] as string);
    break;
  }
  return list;
}

/** Writes a response body to a stream, and the trailer fields after it. */
class Http2StreamSink implements Sink {
  /** Node does not report when a chunk is sent, so its memory is never returned. */
  readonly memory = "borrowed";
  readonly #stream: ServerHttp2Stream;
  #trailers: HeaderList;
  #onDrain: (() => void) | undefined;

  /** @param trailers the trailer fields, if they are known already */
  constructor(stream: ServerHttp2Stream, trailers: HeaderList) {
    this.#stream = stream;
    this.#trailers = trailers;
    stream
      // Node's own listener would send trailer fields that Node itself may refuse, and the exception would end the process.
      .removeAllListeners("wantTrailers")
      .on("wantTrailers", () => this.#sendTrailers())
      .on("drain", () => this.#onDrain?.());
  }

  write(chunk: Uint8Array): boolean {
    return this.#stream.destroyed || this.#stream.write(chunk);
  }

  onDrain(callback: () => void): void {
    this.#onDrain = callback;
  }

  end(trailers: HeaderList = []): void {
    if (this.#stream.destroyed) return;
    this.#trailers = trailers;
    this.#stream.end();
  }

  fail(): void {
    this.#stream.close(INTERNAL_ERROR);
  }

  #sendTrailers(): void {
    try {
      sendFieldObject(toRegularFields(this.#trailers), (fields) =>
        this.#stream.sendTrailers(fields),
      );
    } catch {
      // An interceptor has made a field that cannot be sent.
      this.fail();
    }
  }
}
