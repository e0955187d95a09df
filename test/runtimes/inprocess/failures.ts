/** Cases about apps that fail, and clients that disconnect. */
import { type FetchTarget, ProxyError } from "../../../src/index.ts";
import {
  answering,
  assert,
  assertEqual,
  type Case,
  never,
  read,
  statusOf,
  until,
} from "./_case.ts";

export const failures: Record<string, Case> = {
  async "any value that an app throws becomes 502, and the app is called once"(create) {
    const refusal = Object.assign(new TypeError("fetch failed: secret"), {
      cause: { code: "ECONNREFUSED" },
    });
    const undefinedField = new TypeError("Cannot read properties of undefined (reading 'secret')");
    const aborted = new DOMException("secret", "AbortError");
    const proxyError = new ProxyError("connection_refused", { message: "secret" });
    for (const thrown of [
      new Error("secret"),
      refusal,
      proxyError,
      undefinedField,
      aborted,
      "secret",
    ]) {
      for (const isSync of [false, true]) {
        let calls = 0;
        const causes: unknown[] = [];
        const target: FetchTarget = {
          fetch() {
            calls++;
            // oxlint-disable-next-line typescript/only-throw-error -- any value can be thrown
            if (isSync) throw thrown;
            // oxlint-disable-next-line typescript/prefer-promise-reject-errors -- the same
            return Promise.reject(thrown);
          },
        };
        const proxy = create({ target, onError: (error) => void causes.push(error.cause) });
        assertEqual(await statusOf(proxy), 502);
        assert(causes[0] === thrown, "onError does not get the cause");
        assertEqual([calls, causes.length], [1, 1]);
      }
    }
  },

  async "the client gets 502 if the app is another Fetchway proxy, whose app throws"(create) {
    let calls = 0;
    const inner = create({
      target: answering(() => {
        calls++;
        throw new Error("secret");
      }),
    });
    assertEqual(await statusOf(create({ target: inner })), 502);
    assertEqual(calls, 1);
  },

  async "a returned value that is not a Response becomes 502"(create) {
    const used = new Response("x");
    await used.text();
    for (const answer of [undefined, null, "text", {}, used, Response.error()]) {
      assertEqual(await statusOf(create({ target: answering(() => answer) })), 502);
    }
  },

  async "the app's signal aborts at the deadline"(create) {
    let signal: AbortSignal | undefined;
    const target: FetchTarget = {
      fetch(request) {
        ({ signal } = request);
        return never();
      },
    };
    assertEqual(await statusOf(create({ target, timeout: 30 })), 504);
    assertEqual(signal?.aborted, true);
  },

  async "the app's signal aborts when the client disconnects before or during the response"(
    create,
  ) {
    let signal: AbortSignal | undefined;
    let cancelled = false;
    const target: FetchTarget = {
      fetch(request) {
        ({ signal } = request);
        if (request.url.endsWith("/before")) return never();
        const body = new ReadableStream<Uint8Array>({
          start: (controller) => controller.enqueue(new Uint8Array(1)),
          cancel: () => void (cancelled = true),
        });
        return new Response(body);
      },
    };
    const proxy = create({ target });
    const client = new AbortController();
    const answer = proxy.fetch(read("/before", { signal: client.signal }));
    await until(() => signal !== undefined, "the call");
    assertEqual(signal?.aborted, false);
    client.abort();
    assertEqual((await answer).status, 499);
    assertEqual(signal?.aborted, true);

    const response = await proxy.fetch(read("/during"));
    const reader = (response.body as ReadableStream<Uint8Array>).getReader();
    await reader.read();
    assertEqual([signal?.aborted, cancelled], [false, false]);
    await reader.cancel();
    await until(() => cancelled && signal?.aborted === true, "the cancellation");
  },

  async "a response that the app returns after the deadline is cancelled"(create) {
    let cancelled = false;
    const gate = Promise.withResolvers<void>();
    const target = answering(async () => {
      await gate.promise;
      return new Response(new ReadableStream({ cancel: () => void (cancelled = true) }));
    });
    assertEqual(await statusOf(create({ target, timeout: 20 })), 504);
    gate.resolve();
    await until(() => cancelled, "the late body's cancellation");
  },

  async "a response that the app returns after `attemptTimeout` is cancelled"(create) {
    let calls = 0;
    let cancelled = false;
    const gate = Promise.withResolvers<void>();
    const target = answering(async () => {
      if (calls++ > 0) return new Response("from the next attempt");
      await gate.promise;
      return new Response(new ReadableStream({ cancel: () => void (cancelled = true) }));
    });
    assertEqual(await statusOf(create({ target, attemptTimeout: 20 })), 200);
    gate.resolve();
    await until(() => cancelled, "the late body's cancellation");
  },
};
