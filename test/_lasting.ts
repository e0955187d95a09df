/** Routes that last until their client goes, and how they ended. Imported by hosts: no runtime's API here. */

import { pause } from "./_wait.ts";

/** The signal of the last request to `/hang` or `/stream`, which a later request to `/aborted` reads. */
let signal: AbortSignal | undefined;

export const lasting: Record<string, (request: Request) => Response | Promise<Response>> = {
  // Both wait for timers: workerd ends a request that nothing can answer any more.
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
