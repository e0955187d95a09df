/**
 * Routes whose responses last until their client disconnects, and a route that reports whether the last request for
 * one of them was aborted. Hosts on every runtime import this file, so it uses only web APIs.
 */

import { pause } from "./wait.ts";

/** The signal of the last request to `/hang` or `/stream`, which a later request to `/aborted` reads. */
let signal: AbortSignal | undefined;

export const lasting: Record<string, (request: Request) => Response | Promise<Response>> = {
  // Both routes keep a timer pending, because workerd ends a request that no pending event can answer.
  async "/hang"(request) {
    ({ signal } = request);
    await pause(60_000);
    return new Response();
  },
  "/stream"(request) {
    ({ signal } = request);
    let isCancelled = false;
    return new Response(
      new ReadableStream({
        async pull(controller) {
          await pause(20);
          if (!isCancelled) controller.enqueue(new Uint8Array(1));
        },
        cancel: () => void (isCancelled = true),
      }),
    );
  },
  "/aborted": () => new Response(String(signal?.aborted)),
};

export async function gzip(text: string): Promise<ArrayBuffer> {
  const zipped = new Blob([text]).stream().pipeThrough(new CompressionStream("gzip"));
  return new Response(zipped).arrayBuffer();
}
