import type { Socket } from "node:net";
import type { OutgoingMessage } from "node:http";

/** Resolves when a message or a connection takes more, or never will. */
export function drained(message: OutgoingMessage | Socket): Promise<void> {
  return new Promise((resolve) => {
    const done = (): void => {
      message.off("drain", done).off("close", done);
      resolve();
    };
    message.on("drain", done).on("close", done);
    if (message.destroyed) done();
  });
}
