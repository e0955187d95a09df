import type { Transport } from "../transport/port.ts";
import { STANDARD } from "./fetchtransport.ts";
import { createInProcessTransport } from "./inprocess.ts";

/** The transport to apps on runtimes that call apps with a standard `Request`: all but workerd. */
export const inProcess: Transport = /* @__PURE__ */ createInProcessTransport(
  () => ({ receive: holdToLength }),
  STANDARD,
);

/**
 * Returns the response with a body that fails if it is longer or shorter than its `Content-Length`. The client would
 * take surplus bytes for the next response on the connection, and the next response for the missing bytes (RFC 9112
 * §6.3).
 */
function holdToLength(response: Response): Response {
  const { body, headers, url } = response;
  const length = headers.get("content-length");
  // A response of the runtime's `fetch` has a URL. `fetch` has checked its length, and may have decoded its body.
  if (body === null || length === null || url !== "") return response;
  let left = Number(length);
  const counter = new TransformStream<Uint8Array, Uint8Array>(
    {
      transform(chunk, controller) {
        left -= chunk.byteLength;
        if (left < 0) throw wrongLength();
        controller.enqueue(chunk);
      },
      flush() {
        if (left !== 0) throw wrongLength();
      },
    },
    undefined,
    { highWaterMark: 0 },
  );
  return new Response(body.pipeThrough(counter), response);
}

function wrongLength(): TypeError {
  return new TypeError("the body of the app's response is not as long as its content-length");
}
