/**
 * The body of a GET, HEAD or DELETE, which some upstreams do not read: whether it is forwarded, and how often it is sent.
 */
import { describe, expect, test, vi } from "vitest";
import { rfc } from "../../conformance/rfc.ts";
import { ProxyError } from "../../../src/error.ts";
import type { ProxyOptions } from "../../../src/options/proxyoptions.ts";
import {
  answering,
  bytes,
  fakeResponse,
  FakeTransport,
  run,
  stale,
  streamOf,
  to,
} from "../../helpers/fakes.ts";

describe("the body of a GET or HEAD", () => {
  const send = async (
    given: Parameters<typeof run>[0],
    options: ProxyOptions = {},
  ): Promise<[number, (string | null)[]]> => {
    const transport = answering();
    const { status } = await run({ method: "GET", ...given }, { transport, options });
    return [status, transport.bodies];
  };

  test("is forwarded, or with `dropGetBody` dropped and cancelled", async () => {
    const cancel = vi.fn();
    expect(await send({ body: streamOf(["q"]) })).toEqual([200, ["q"]]);
    const dropped = send({ body: streamOf(["q"], cancel) }, { dropGetBody: true });
    expect(await dropped).toEqual([200, [null]]);
    expect(cancel).toHaveBeenCalledOnce();
  });

  test.each([
    ["Content-Length", "5", 501],
    ["Content-Length", "0", 200],
    ["Transfer-Encoding", "chunked", 501],
    ["X-A", "5", 200],
  ])(
    "may exist although the server hides it: then a GET with %s: %s gets %i",
    async (name, value, status) => {
      const given = { headers: ["Host", "a", name, value], hidesGetBody: true };
      expect((await send(given))[0]).toBe(status);
      expect(await send(given, { dropGetBody: true })).toEqual([200, [null]]);
      expect((await send({ ...given, hidesGetBody: false }))[0]).toBe(200);
      expect((await send({ ...given, method: "POST" }))[0]).toBe(200);
    },
  );

  test.each(["GET", "HEAD", "DELETE"])(
    "of %s is not sent a second time, unless nothing of it was sent before",
    async (method) => {
      rfc("9110-9.3.1-content");
      for (const body of [bytes("x"), streamOf(["x"])]) {
        const transport = answering(stale);
        const options: ProxyOptions = { retry: { attempts: 2 } };
        const { status } = await run({ method, body }, { transport, options });
        expect([status, transport.bodies]).toEqual([502, ["x"]]);
      }
      let count = 0;
      const refusing = new FakeTransport(() => {
        if (count++ === 0) throw new ProxyError("connection_refused");
        return fakeResponse();
      });
      expect((await run({ method, body: streamOf(["x"]) }, { transport: refusing })).status).toBe(
        200,
      );
      const redirecting = answering(to("/next", 307));
      const followed = await run(
        { method, body: bytes("x") },
        { transport: redirecting, options: { followRedirects: true } },
      );
      expect([followed.status, redirecting.hops.length]).toEqual([307, 1]);
    },
  );
});
