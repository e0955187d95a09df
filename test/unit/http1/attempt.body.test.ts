/** Request bodies that an attempt of the HTTP/1.1 client does not send completely. */
import { expect, test, vi } from "vitest";
import { Attempt } from "../../../src/http1/attempt.ts";
import type { OriginPool } from "../../../src/http1/originpool.ts";
import { BytesBody } from "../../../src/body/bytes.ts";
import type { BodySource } from "../../../src/body/source.ts";
import { ProxyError } from "../../../src/error.ts";
import type { UpstreamRequest, UpstreamResponse } from "../../../src/transport/message.ts";
import {
  bytes,
  errorOf,
  fakeRequest,
  fakeScope,
  type Given,
  streamOf,
  toBody,
} from "../../helpers/fakes.ts";
import { portableCodec } from "./_codec.ts";

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

test("a body of which nothing was sent is not cancelled, and can be read by another attempt", async () => {
  const cancelled = vi.fn();
  for (const given of [streamOf(["abc"], cancelled), bytes("abc")]) {
    const body = toBody(given) as BodySource;
    const { attempt: failing, reply } = attempt({ body });
    failing.fail(refused);
    expect(await errorOf(() => reply)).toBe(refused);
    expect(await new Response(body.stream()).text()).toBe("abc");
  }
  expect(cancelled).not.toHaveBeenCalled();
});

test("a body that fails before it is sent fails the attempt with its own error", async () => {
  const error = new ProxyError("http_request_error", { status: 413 });
  const body: BodySource = new BytesBody(bytes("abc"));
  body.whole = (): never => {
    throw error;
  };
  const { attempt: failing, reply } = attempt({ body });
  failing.join({ destroy: () => {}, isStale: false } as never);
  failing.send();
  expect(await errorOf(() => reply)).toBe(error);
});

test("an exception of the socket's write fails the attempt, and reaches no caller, because it would end the process", async () => {
  const cause = new TypeError("not bytes");
  const { attempt: failing, reply } = attempt({ body: bytes("abc") });
  failing.join({
    codec: portableCodec,
    keepAlive: true,
    isStale: false,
    drain() {},
    beginRequest() {},
    markRequestComplete() {},
    destroy() {},
    write() {
      throw cause;
    },
  } as never);
  failing.send();
  expect(await errorOf(() => reply)).toMatchObject({ code: "proxy_internal_error", cause });
});

test("a body whose length differs from the announced one fails the attempt before anything is written", async () => {
  const destroy = vi.fn();
  const write = vi.fn();
  const { attempt: failing, reply } = attempt({ body: bytes("abc"), contentLength: 5 });
  failing.join({ destroy, write, isStale: false } as never);
  failing.send();
  expect(await errorOf(() => reply)).toMatchObject({ status: 400 });
  expect(write).not.toHaveBeenCalled();
  expect(destroy).toHaveBeenCalledOnce();
});
