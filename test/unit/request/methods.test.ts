/** Methods that the core treats specially: CONNECT, TRACE, and OPTIONS of a server as a whole. */
import { expect, test, vi } from "vitest";
import { rfc } from "../../conformance/rfc.ts";
import { FakeTransport, fakeResponse, run, streamOf, TARGET, to } from "../../helpers/fakes.ts";

test("CONNECT gets 405 with Allow, and is never sent", async () => {
  const transport = new FakeTransport(() => fakeResponse());
  const response = await run({ method: "CONNECT", path: "/" }, { transport });
  expect(response.status).toBe(405);
  expect(response.headers.get("allow")).toMatch(/^GET, HEAD, POST, .*QUERY$/);
  expect(response.headers.get("proxy-status")).toBe("fetchway; error=http_request_error");
  expect(transport.hops).toEqual([]);
});

test("the content of TRACE is dropped, and its source is cancelled", async () => {
  rfc("9110-9.3.8-content");
  const transport = new FakeTransport(() => fakeResponse());
  const cancelled = vi.fn();
  const body = streamOf(["content"], cancelled);
  await run({ method: "TRACE", body }, { transport, options: { trace: true } });
  expect(transport.hops.map((hop) => hop.body)).toEqual([null]);
  expect(cancelled).toHaveBeenCalledTimes(1);
});

test.each([
  ["OPTIONS", TARGET, "*"],
  ["OPTIONS", `${TARGET}/base/`, "/base"],
  ["OPTIONS", `${TARGET}/base?k=v`, "/base?k=v"],
  ["OPTIONS", `${TARGET}/?k=v`, "/?k=v"],
])(
  "%s * to the target %s is sent with the path %s, whatever the options do to paths",
  async (method, target, path) => {
    const transport = new FakeTransport(() => fakeResponse());
    const options = { pathRewrite: () => "/rewritten", onRequest: () => {} };
    const response = await run({ method, path: "*" }, { transport, target, options });
    expect(response.status).toBe(200);
    expect(transport.hops.map((hop) => hop.path)).toEqual([path]);
  },
);

test("the path * with another method than OPTIONS gets 400, or becomes `/*` if a hook has set it", async () => {
  const transport = new FakeTransport(() => fakeResponse());
  expect((await run({ method: "GET", path: "*" }, { transport })).status).toBe(400);
  expect(transport.hops).toEqual([]);
  const options = { onRequest: (draft: { path: string }) => void (draft.path = "*") };
  await run({ method: "GET" }, { transport, options });
  expect(transport.hops[0]?.path).toBe("/*");
});

test("a redirect of OPTIONS * goes to the client", async () => {
  const transport = new FakeTransport(() => fakeResponse(to("/next")));
  const options = { followRedirects: true };
  const response = await run({ method: "OPTIONS", path: "*" }, { transport, options });
  expect(response.status).toBe(302);
  expect(transport.hops).toHaveLength(1);
});
