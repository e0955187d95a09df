import type { OutgoingMessage } from "node:http";

/** Resolves when a message has room for more, or is closed. */
export function drained(message: OutgoingMessage): Promise<void> {
  return new Promise((resolve) => {
    const done = (): void => {
      message.off("drain", done).off("close", done);
      resolve();
    };
    message.on("drain", done).on("close", done);
    if (message.destroyed) done();
  });
}
