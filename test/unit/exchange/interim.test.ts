/** Interim responses in the core: they reach the client and the hook onInformational, which may throw. */
import { expect, test, vi } from "vitest";
import { ProxyError } from "../../../src/error.ts";
import { cleanInterimHeaders } from "../../../src/fields/hopbyhop.ts";
import type { HeaderList } from "../../../src/fields/headers.ts";
import {
  errorOf,
  FakeTransport,
  fakeResponse,
  proxyError,
  run,
  startScope,
} from "../../helpers/fakes.ts";

const HINT: HeaderList = ["Link", "<a>", "Connection", "x-b", "X-B", "c", "Link", "<d>"];

/** Creates a transport that sends an interim response, waits a turn of the event loop, and sends the final response. */
const hinting = (): FakeTransport =>
  new FakeTransport(async (_, scope) => {
    scope.interimReceived(103, HINT);
    await new Promise((resolve) => void setTimeout(resolve));
    if (scope.error !== undefined) throw scope.error;
    return fakeResponse();
  });

test("connection fields and Content-Length of interim responses are dropped, and repeated fields are kept", () => {
  const own = ["Keep-Alive", "timeout=5", "Content-Length", "3", "alt-svc", "clear"];
  expect(cleanInterimHeaders([...HINT, ...own, "X_B", "c"])).toEqual([
    "Link",
    "<a>",
    "Link",
    "<d>",
  ]);
});

test("the client and onInformational get interim responses without connection fields and Content-Length", async () => {
  const inform = vi.fn();
  const onInformational = vi.fn();
  const { status } = await run({ inform }, { options: { onInformational }, transport: hinting() });
  expect(status).toBe(200);
  expect(inform).toHaveBeenCalledExactlyOnceWith(103, ["Link", "<a>", "Link", "<d>"]);
  expect(onInformational).toHaveBeenCalledExactlyOnceWith(
    103,
    new Headers({ link: "<a>, <d>" }),
    expect.any(Request),
  );
});

test("interim responses reach the client if onInformational is not set, and the hook if the server has no `inform`", async () => {
  const inform = vi.fn();
  await run({ inform }, { transport: hinting() });
  expect(inform).toHaveBeenCalledTimes(1);
  const onInformational = vi.fn();
  await run({}, { options: { onInformational }, transport: hinting() });
  expect(onInformational).toHaveBeenCalledTimes(1);
});

const exception = new Error("10.0.0.1 is secret");

test.each([
  [
    "throws",
    () => {
      throw exception;
    },
  ],
  ["rejects", () => Promise.reject(exception)],
])(
  "an onInformational that %s makes the call reject, unless onError returns a response",
  async (_, hook) => {
    const options = { onInformational: hook };
    expect(await errorOf(() => run({}, { options, transport: hinting() }))).toBe(exception);
    const onError = vi.fn(() => new Response(null, { status: 503 }));
    const answer = await run({}, { options: { ...options, onError }, transport: hinting() });
    expect(answer.status).toBe(503);
    const error: unknown = expect.objectContaining({ cause: exception });
    expect(onError).toHaveBeenCalledExactlyOnceWith(error, expect.any(Request));
  },
);

test.each([
  [
    "throws",
    () => {
      throw exception;
    },
  ],
  ["rejects", () => Promise.reject(exception)],
])(
  "the call rejects if the server's `inform` %s, whether or not onInformational rejects too",
  async (_, inform) => {
    for (const onInformational of [() => {}, () => Promise.reject(new Error("hook"))]) {
      const options = { onInformational };
      const thrown = await errorOf(() => run({ inform }, { options, transport: hinting() }));
      expect([exception.message, "hook"]).toContain((thrown as Error).message);
    }
  },
);

test("the return value of onInformational has no effect if it is not a native promise", async () => {
  const seen: number[] = [];
  // oxlint-disable-next-line unicorn/no-thenable -- a promise of another library
  const thenable = { then: (resolve: (value: undefined) => void) => resolve(undefined) };
  const hooks = [(status: number) => seen.push(status) as unknown, () => thenable];
  for (const hook of hooks) {
    const options = { onInformational: hook as () => void };
    const { status } = await run({}, { options, transport: hinting() });
    expect(status).toBe(200);
  }
  expect(seen).toEqual([103]);
});

test("with onInformational, a network failure still becomes a gateway error response", async () => {
  const transport = new FakeTransport(() => Promise.reject(new ProxyError("dns_error")));
  const { status } = await run({}, { options: { onInformational() {} }, transport });
  expect(status).toBe(502);
});

test("an exception of the server's `inform` aborts the exchange, and the ended scope passes on no interim response", () => {
  const { client, scope, fail } = startScope();
  Object.assign(client, {
    inform() {
      throw exception;
    },
  });
  scope.interimReceived(103, []);
  expect(fail).toHaveBeenCalledExactlyOnceWith(proxyError("proxy_internal_error", 500));
  expect(() => scope.interimReceived(103, [])).not.toThrow();
});

test("a forked scope passes on no interim responses, but the scope of a further attempt does", () => {
  const inform = vi.fn();
  const { client, scope } = startScope();
  Object.assign(client, { inform });
  scope.fork().interimReceived(103, []);
  expect(inform).not.toHaveBeenCalled();
  scope.again().interimReceived(103, []);
  expect(inform).toHaveBeenCalledTimes(1);
});
