/** Node's own functions are distinguished from functions that other code has wrapped around them. */
import { EventEmitter } from "node:events";
import { OutgoingMessage } from "node:http";
import { Socket } from "node:net";
import { Readable } from "node:stream";
import { afterEach, describe, expect, test } from "vitest";
import { isOwnMethod } from "../../../../runtimes/node/internals/ownmethod.ts";

type Method = (this: unknown, ...args: unknown[]) => unknown;

const before = Object.assign({ prepareStackTrace: undefined }, Error);
afterEach(() => void Object.assign(Error, before));

const methods: [name: string, prototype: object][] = [
  ...["write", "end", "_send", "_writeRaw"].map(
    (name) => [name, OutgoingMessage.prototype] as const,
  ),
  ...["write", "_write", "_writev", "_writeGeneric"].map(
    (name) => [name, Socket.prototype] as const,
  ),
  ...["push", "read", "on"].map((name) => [name, Readable.prototype] as const),
  ...["emit"].map((name) => [name, EventEmitter.prototype] as const),
].map(([name, prototype]) => [name, prototype]);

/** The ways in which code wraps a method. */
const wrappers: Record<string, (method: Method) => unknown> = {
  "a function": (method) =>
    function (this: unknown, ...args: unknown[]) {
      return method.apply(this, args);
    },
  "an asynchronous function": (method) =>
    async function (this: unknown, ...args: unknown[]) {
      return method.apply(this, args);
    },
  "a function that catches": (method) =>
    function (this: unknown, ...args: unknown[]) {
      try {
        return method.apply(this, args);
      } catch {
        return undefined;
      }
    },
  "a function that calls later": (method) =>
    function (this: unknown, ...args: unknown[]) {
      queueMicrotask(() => {
        try {
          method.apply(this, args);
        } catch {
          // `isOwnMethod` calls the wrapper on an object whose members throw.
        }
      });
    },
  "a proxy": (method) =>
    new Proxy(method, { apply: (target, self, args) => Reflect.apply(target, self, args) }),
  "a bound function": (method) => method.bind(new EventEmitter()),
  "a function that does not call it": () => undefined,
};

describe.each(methods)("the method `%s`", (name, prototype) => {
  const method = Reflect.get(prototype, name) as Method;

  test("is Node's own", () => {
    expect(isOwnMethod(method)).toBe(true);
  });

  test.each(Object.entries(wrappers))("is not Node's own when it is wrapped in %s", (_, wrap) => {
    expect(isOwnMethod(wrap(method))).toBe(false);
  });

  test("counts as wrapped if stack traces are turned off, or have another form", () => {
    Error.stackTraceLimit = 0;
    expect(isOwnMethod(method)).toBe(false);
    Object.assign(Error, before);
    Error.prepareStackTrace = (_, frames) => frames;
    expect(isOwnMethod(method)).toBe(false);
  });
});
