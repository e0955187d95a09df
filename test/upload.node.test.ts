/** A request's body on its way from Node's server to an upstream. */
import type { IncomingMessage } from "node:http";
import { PassThrough } from "node:stream";
import { expect, test } from "vitest";
import type { Writer } from "../runtimes/http/writer.ts";
import { IncomingBody } from "../runtimes/node/upload.ts";
import { fakeLifetime } from "./_fakes.ts";

test("a body that breaks off fails, and does not seem to have been sent", async () => {
  const message = new PassThrough();
  const writer = { onStop() {}, flush() {}, write() {}, end() {} } as unknown as Writer;
  const body = new IncomingBody(message as unknown as IncomingMessage);
  const sent = body.sendTo(writer, fakeLifetime());
  message.write("half");
  message.destroy(new Error("broken"));
  await expect(sent).rejects.toThrow("broken");
});
