/**
 * Request bodies above a limit of the framework: SvelteKit's stream fails, and Next's ends early. Also request streams that
 * frameworks make after a body parser has read the body: some end early, others never end.
 */
import { once } from "node:events";
import { createServer } from "node:http2";
import type { AddressInfo } from "node:net";
import { afterAll, afterEach, beforeAll, describe, expect, test } from "vitest";
import { createProxy, type CreateProxyOptions, type ProxyError } from "../../../runtimes/node.ts";
import { explainError } from "../../../src/explain/errors.ts";
import { Upstream } from "../../helpers/upstream.ts";
import { patience, within } from "../../helpers/wait.ts";

const upstream = new Upstream();
beforeAll(() => upstream.listen());
afterEach(() => upstream.reset());
afterAll(() => upstream.stop());

// The pinned undici needs a newer Node than Fetchway does, so leave it out where the import fails.
const undici = await import("../../../runtimes/undici.ts").catch(() => undefined);

const clients: Record<string, Partial<CreateProxyOptions>> = {
  "Fetchway's client": {},
  ...(undici && { undici: { transport: undici.createTransport() } }),
  fetch: { fetch: globalThis.fetch },
};

const LIMIT = 524_288;
/** A time limit in milliseconds within which a loaded machine opens a connection. */
const TIMEOUT = 1_600;

/** Makes a request as frameworks do: with their own stream and the client's fields. */
function makeRequest(pieces: number, end: Error | undefined, length?: number): Request {
  let left = pieces;
  const body = new ReadableStream<Uint8Array>(
    {
      pull(controller) {
        if (left-- > 0) return controller.enqueue(new Uint8Array(LIMIT / 8).fill(97));
        if (end === undefined) controller.close();
        else controller.error(end);
      },
    },
    { highWaterMark: 0 },
  );
  const headers = length === undefined ? {} : { "content-length": String(length) };
  return new Request("http://proxy.test/", {
    method: "POST",
    body,
    headers,
    duplex: "half",
  } as RequestInit);
}

describe.each(Object.entries(clients))("a request through %s", (_, options) => {
  async function send(request: Request): Promise<{ status: number; error: ProxyError }> {
    let reported: ProxyError | undefined;
    const onError = (error: ProxyError): void => void (reported = error);
    const proxy = createProxy({ target: upstream.url, onError, ...options });
    upstream.script = async (call) => {
      await call.done;
      call.reply(200, [], "complete");
    };
    const { status } = await within(proxy.fetch(request), "the response");
    // The proxy must close the connection, so that the upstream does not treat the incomplete body as complete.
    for (const { link } of upstream.calls) await within(link.closed, "the connection's end");
    await proxy.close();
    return { status, error: reported as ProxyError };
  }

  const limit = Object.assign(new Error(`request body size exceeded ${LIMIT}`), { status: 413 });

  test.each([
    ["immediately", 0, 12 * LIMIT],
    ["at the limit", 8, undefined],
  ])(
    "gets 413 if the stream of its body fails %s with an error of status 413",
    async (_when, pieces, length) => {
      const { status, error } = await send(makeRequest(pieces, limit, length));
      expect(status).toBe(413);
      expect(error.cause).toBe(limit);
      expect(error.message).toBe(`the stream of the request body failed: ${limit.message}`);
    },
  );

  test("gets 400 if the stream of its body fails with an error that has no status", async () => {
    const cause = new Error("terminated");
    const { status, error } = await send(makeRequest(1, cause));
    expect(status).toBe(400);
    expect(error.cause).toBe(cause);
    expect(error.message).toContain("terminated");
  });

  test.runIf(options.fetch === undefined)(
    "gets 400 if the stream of its body ends before its Content-Length",
    async () => {
      const { status, error } = await send(makeRequest(8, undefined, 2 * LIMIT));
      expect(status).toBe(400);
      expect(explainError(error)).toMatch(
        /has 524288 of 1048576 bytes \(.* body parser, .* limit of the framework/,
      );
    },
  );
});

test.each([
  ["HTTP/1.1", false],
  ["HTTP/2", true],
])(
  "over %s, the error of the time limit says that the request body has stopped",
  async (_, isHttp2) => {
    const http2 = createServer((req, res) => void (req.method === "GET" && res.end()));
    http2.listen(0, "127.0.0.1");
    await once(http2, "listening");
    const { port } = http2.address() as AddressInfo;
    let reported: ProxyError | undefined;
    const proxy = createProxy({
      target: isHttp2 ? { url: `http://127.0.0.1:${port}`, http2: true } : upstream.url,
      timeout: TIMEOUT,
      onError: (error) => void (reported = error),
    });
    upstream.script = (call) => (call.method === "GET" ? call.reply(200, [], "") : undefined);
    // The time limit may pass before the first connection is established.
    const open = async () => (await proxy.fetch(new Request("http://proxy.test/"))).status;
    await expect.poll(open, { timeout: patience }).toBe(200);
    const headers = { "content-length": "2" };
    const body = new ReadableStream<Uint8Array>({
      start: (controller) => controller.enqueue(new Uint8Array(1)),
    });
    const init = { method: "POST", headers, body, duplex: "half" };
    const response = await proxy.fetch(new Request("http://proxy.test/", init));
    expect(response.status).toBe(504);
    expect(explainError(reported)).toMatch(
      /^http_response_timeout: .* body stopped after 1 bytes \(.* has a body parser read it.* timeout\)$/,
    );
    // If the upstream has the whole body, the error blames the upstream.
    await proxy.fetch(new Request("http://proxy.test/", { method: "POST", body: "xx" }));
    expect(explainError(reported)).toContain(
      `no response headers within ${TIMEOUT} ms (see its log;`,
    );
    proxy.destroy();
    http2.close();
  },
);
