import type { IncomingMessage, ServerResponse } from "node:http";
import type { ServerHttp2Stream } from "node:http2";
import type { HeaderList } from "../../src/fields/headers.ts";
import { isHttp2 } from "./incomingbody.ts";
import { writeInformation } from "./internals/information.ts";
import { responseOn } from "./internals/pipelining.ts";

/**
 * Sends an interim response to the client of a request. Sends nothing if the client speaks HTTP/1.0, which has no interim
 * responses, if the final response has begun, or if the response to an earlier pipelined request is not finished.
 *
 * 100 (Continue) is not sent: it answers the request that the proxy has sent, and Node sends its own to the client.
 * @param res the response to the request; undefined where the server does not show it
 */
export function writeInterim(
  message: IncomingMessage,
  res: ServerResponse | undefined,
  status: number,
  headers: HeaderList,
): void {
  if (status === 100 || message.httpVersion === "1.0") return;
  if (isHttp2(message)) {
    return writeOnStream(message.stream, status, headers);
  }
  const response = res ?? responseOn(message.socket);
  // The current response may belong to another request of the connection. The client would then take this interim response for
  // an answer to that request.
  if (response?.req.rawHeaders !== message.rawHeaders || response.headersSent) return;
  // Without a connection, the response waits behind that of an earlier pipelined request. Node would keep what is written
  // now, and send it after the head of this response, as the first bytes of the body.
  if (response.socket === null) return;
  writeInformation(response, status, headers);
}

function writeOnStream(stream: ServerHttp2Stream, status: number, headers: HeaderList): void {
  // Check `closed` as well: a stream that the client has reset is destroyed only later.
  if (stream.headersSent || stream.destroyed || stream.closed) return;
  const record = toHttp2Record(headers);
  try {
    stream.additionalHeaders({ ":status": status, ...record });
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== "ERR_HTTP2_HEADER_SINGLE_VALUE") throw error;
    for (const values of Object.values(record)) values.splice(0, Infinity, values.join(", "));
    stream.additionalHeaders({ ":status": status, ...record });
  }
}

/** Returns fields by their names in lower case, as HTTP/2 has them; the values of repeated fields stay separate. */
function toHttp2Record(list: HeaderList): Record<string, string[]> {
  const record: Record<string, string[]> = {};
  for (let i = 0; i < list.length; i += 2) {
    const name = (list[i] as string).toLowerCase();
    const value = list[i + 1] as string;
    if (Object.hasOwn(record, name)) record[name]?.push(value);
    else Object.defineProperty(record, name, { value: [value], enumerable: true });
  }
  return record;
}
