/** The event of `onRequestEnd`; test/suite/observation.ts checks its values on each host. */
import { expect, test, vi } from "vitest";
import { Observation } from "../../../src/exchange/observation.ts";
import type { RequestEnd } from "../../../src/options/observationoptions.ts";
import type { ProxyOptions } from "../../../src/options/proxyoptions.ts";
import { answering, bytes, fakeIncoming, fakeRequest, run, streamOf } from "../../helpers/fakes.ts";
import { FakeSink } from "../../helpers/sink.ts";
import { until } from "../../helpers/wait.ts";

test("the event of onRequestEnd does not change after it has been reported", async () => {
  const events: RequestEnd[] = [];
  const observation = new Observation(fakeIncoming(), "/shop", (event) => events.push(event));
  const { body } = observation.beginAttempt(fakeRequest({ method: "POST", body: bytes("upload") }));
  await observation.conclude(Promise.resolve(new Response(null, { status: 204 })));
  const [event] = events;
  const reported = JSON.stringify(event);
  expect(event).toMatchObject({ route: "/shop", status: 204, attempts: 1, bytesIn: 0 });

  // An interceptor may race attempts. So after the end of the exchange, an upload may continue, and another attempt may
  // get a connection.
  await body?.pipeTo(new FakeSink());
  observation.connectionAssigned({ isReused: true, connectDuration: 1 });
  observation.headersReceived();
  observation.beginAttempt(fakeRequest());
  observation.failed(new Error("late"));
  expect(JSON.stringify(event)).toBe(reported);
  expect(event?.error).toBeUndefined();
  expect(events).toHaveLength(1);
});

test.each<[string, string, ProxyOptions]>([
  [
    "a response that onResponse replaces",
    "GET",
    { onResponse: () => new Response("sorry", { status: 500 }) },
  ],
  ["the body of a response to HEAD", "HEAD", { onRequest: (draft) => void (draft.method = "GET") }],
])(
  "the event of onRequestEnd has no error if the proxy discards %s",
  async (_, method, options) => {
    const events: RequestEnd[] = [];
    const transport = answering({ status: 500, body: streamOf(["a", "b"]) });
    const onRequestEnd = (event: RequestEnd): void => void events.push(event);
    await run({ method }, { transport, options: { ...options, onRequestEnd } });
    await until(() => events.length > 0, "the event");
    expect(events).toMatchObject([{ status: 500, error: undefined }]);
  },
);

test("the event of onRequestEnd counts the body of a response from which onResponse makes another one", async () => {
  const events: RequestEnd[] = [];
  const transport = answering({ body: streamOf(["abc", "de"]) });
  const options: ProxyOptions = {
    onResponse: ({ body }) => new Response(body, { status: 201 }),
    onRequestEnd: (event) => void events.push(event),
  };
  const response = await run({}, { transport, options });
  expect(events).toEqual([]);
  expect(await response.text()).toBe("abcde");
  await until(() => events.length > 0, "the event");
  expect(events).toMatchObject([{ status: 201, bytesOut: 5, error: undefined }]);
});

test("the event of onRequestEnd follows the body of a clone that onResponse returns", async () => {
  const events: RequestEnd[] = [];
  const options: ProxyOptions = {
    onResponse: (response) => new Response(response.clone().body, { status: 201 }),
    onRequestEnd: (event) => void events.push(event),
  };
  const whole = await run({}, { transport: answering({ body: streamOf(["abc", "de"]) }), options });
  expect(await whole.text()).toBe("abcde");
  await until(() => events.length === 1, "the event");
  expect(events[0]).toMatchObject({ status: 201, bytesOut: 5, error: undefined });

  let upstream: ReadableStreamDefaultController<Uint8Array> | undefined;
  const body = new ReadableStream<Uint8Array>({ start: (given) => void (upstream = given) });
  const broken = await run({}, { transport: answering({ body }), options });
  upstream?.error(new Error("broken"));
  await expect(broken.text()).rejects.toThrow();
  await until(() => events.length === 2, "the event");
  expect(events[1]?.error).toEqual(new Error("broken"));
});

test.each<[string, () => void]>([
  [
    "throws",
    () => {
      throw new Error("of the hook");
    },
  ],
  ["rejects", () => Promise.reject(new Error("of the hook"))],
])(
  "if onRequestEnd %s, its exception is printed, and the response is not affected",
  async (_, hook) => {
    const print = vi.spyOn(console, "error").mockImplementation(() => {});
    try {
      const observation = new Observation(fakeIncoming(), undefined, hook);
      const { status } = await observation.conclude(Promise.resolve(new Response()));
      expect(status).toBe(200);
      await until(() => print.mock.calls.length > 0, "the exception to be printed");
      expect(print.mock.calls).toEqual([[new Error("of the hook")]]);
    } finally {
      print.mockRestore();
    }
  },
);
