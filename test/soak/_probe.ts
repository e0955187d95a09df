/** Runs in the process of the command. When it is asked, it reports the memory of that process after garbage collections. */
import process from "node:process";

export interface Memory {
  /** The memory of objects after garbage collections. */
  readonly heap: number;
  /** The memory of buffers. */
  readonly external: number;
  readonly rss: number;
}

const { gc } = globalThis as { gc?: () => void };

process.on("message", () => {
  // Collect twice: finalizers run after the first collection, and the second one frees the objects that they release.
  gc?.();
  setTimeout(() => {
    gc?.();
    const { heapUsed: heap, external, rss } = process.memoryUsage();
    process.send?.({ heap, external, rss } satisfies Memory);
  }, 50);
});
// The channel must not keep a process alive that has stopped.
process.channel?.unref();
