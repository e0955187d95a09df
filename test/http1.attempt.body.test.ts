/** Request bodies that an attempt of the HTTP/1.1 client does not send completely. */
import { expect, test, vi } from "vitest";
import { Attempt } from "../src/http1/attempt.ts";
import type { OriginPool } from "../src/http1/originpool.ts";
import { BytesBody } from "../src/body/bytes.ts";
import type { BodySource } from "../src/body/source.ts";
import { ProxyError } from "../src/error.ts";
import type { UpstreamRequest, UpstreamResponse } from "../src/transport/message.ts";
import { bytes, errorOf, fakeRequest, fakeScope, type Given, streamOf } from "./_fakes.ts";

/** A pool in which requests wait forever. */
const waiting = { assign: () => {}, leave: () => {} } as unknown as OriginPool;

function attempt(over: Given<UpstreamRequest>): {
  attempt: Attempt;
  reply: Promise<UpstreamResponse>;
} {
  let made: Attempt | undefined;
  const hop = fakeRequest({ method: "POST", ...over });
  const reply = new Promise<UpstreamResponse>((resolve, reject) => {
    made = new Attempt(hop, fakeScope(), resolve, reject);
  });
  (made as unknown as Attempt).begin(waiting);
  return { attempt: made as unknown as Attempt, reply };
}

const refused = new ProxyError("connection_refused");

test("a stream is cancelled when no connection can be made", async () => {
  const cancelled = vi.fn();
  const { attempt: failing, reply } = attempt({ body: streamOf(["abc"], cancelled) });
  failing.fail(refused);
  expect(await errorOf(() => reply)).toBe(refused);
  expect(cancelled).toHaveBeenCalledOnce();
  failing.fail(new ProxyError("proxy_internal_error"));
  expect(cancelled).toHaveBeenCalledOnce();
});

test("a body that has arrived completely is kept and not cancelled, so that another attempt can send it", async () => {
  const body: BodySource = new BytesBody(bytes("abc"));
  const whole = vi.spyOn(body, "whole");
  const cancel = vi.spyOn(body, "cancel");
  const { attempt: failing, reply } = attempt({ body });
  failing.fail(refused);
  await errorOf(() => reply);
  expect(whole).toHaveBeenCalledOnce();
  expect(cancel).not.toHaveBeenCalled();
  expect(body.replay).toEqual(bytes("abc"));
});

test("a body that fails before it is sent fails the attempt with its own error", async () => {
  const error = new ProxyError("http_request_error", { status: 413 });
  const body: BodySource = new BytesBody(bytes("abc"));
  body.whole = (): never => {
    throw error;
  };
  const { attempt: failing, reply } = attempt({ body });
  failing.sendOn({ destroy: () => {}, isStale: false } as never);
  expect(await errorOf(() => reply)).toBe(error);
});

test("a body whose length differs from the announced one fails the attempt before anything is written", async () => {
  const destroy = vi.fn();
  const write = vi.fn();
  const { attempt: failing, reply } = attempt({ body: bytes("abc"), contentLength: 5 });
  failing.sendOn({ destroy, write, isStale: false } as never);
  expect(await errorOf(() => reply)).toMatchObject({ status: 400 });
  expect(write).not.toHaveBeenCalled();
  expect(destroy).toHaveBeenCalledOnce();
});
