/** `onFirstRead` calls back when a request is read for the first time, or immediately if the request has no `_read`. */
import { IncomingMessage } from "node:http";
import { Socket } from "node:net";
import { expect, test, vi } from "vitest";
import { onFirstRead } from "../../../runtimes/node/attachcontinue.ts";

test.each([
  ["data", (message: IncomingMessage) => void message.on("data", () => {})],
  ["readable", (message: IncomingMessage) => void message.on("readable", () => {})],
  ["read()", (message: IncomingMessage) => void message.read()],
  ["resume()", (message: IncomingMessage) => void message.resume()],
  ["a loop", (message: IncomingMessage) => void message[Symbol.asyncIterator]().next()],
])("`onFirstRead` calls back once when a request is first read: %s", async (_, read) => {
  const message = new IncomingMessage(new Socket());
  const callback = vi.fn();
  onFirstRead(message, callback);
  message.on("end", () => {});
  message.pause();
  expect(callback).not.toHaveBeenCalled();
  read(message);
  message.resume();
  await vi.waitFor(() => expect(callback).toHaveBeenCalled());
  message.read();
  expect(callback).toHaveBeenCalledTimes(1);
  expect(Object.hasOwn(message, "_read")).toBe(false);
});

test("`onFirstRead` calls back immediately if the request has no `_read`", () => {
  const callback = vi.fn();
  onFirstRead({} as IncomingMessage, callback);
  expect(callback).toHaveBeenCalledTimes(1);
});
