/** The event of `onRequestEnd`; test/suite/observation.ts checks its facts on each host. */
import { expect, test } from "vitest";
import { Observation, type RequestEnd } from "../src/exchange/observation.ts";
import { bytes, fakeIncoming, fakeRequest } from "./_fakes.ts";
import { FakeSink } from "./_sink.ts";

test("what happens after the report does not change it", async () => {
  const events: RequestEnd[] = [];
  const observation = new Observation(fakeIncoming(), "/shop", (event) => events.push(event));
  const { body } = observation.beginAttempt(fakeRequest({ method: "POST", body: bytes("upload") }));
  await observation.conclude(Promise.resolve(new Response(null, { status: 204 })));
  const [event] = events;
  const reported = JSON.stringify(event);
  expect(event).toMatchObject({ route: "/shop", status: 204, attempts: 1, bytesIn: 0 });

  // The upload goes on, and an attempt that an interceptor has raced gets its connection.
  await body?.pipeTo(new FakeSink());
  observation.connectionAssigned({ isReused: true, connectDuration: 1 });
  observation.headersReceived();
  observation.beginAttempt(fakeRequest());
  observation.failed(new Error("late"));
  expect(JSON.stringify(event)).toBe(reported);
  expect(event?.error).toBeUndefined();
  expect(events).toHaveLength(1);
});
