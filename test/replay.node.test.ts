/** Request bodies that are sent again on Node, where chunks are Buffers and may lie in memory that is freed. */
import { once } from "node:events";
import { type IncomingMessage, request } from "node:http";
import { afterAll, expect, test } from "vitest";
import { createProxy } from "../runtimes/node.ts";
import type { ProxyOptions } from "../src/options/options.ts";
import { bodyOf, startHttp } from "./_kept.ts";

const LENGTH = 700_000;

async function readAll(message: AsyncIterable<Uint8Array>): Promise<Buffer> {
  const chunks: Uint8Array[] = [];
  for await (const chunk of message) chunks.push(chunk);
  return Buffer.concat(chunks);
}

/** Reads a body as code may that owns its chunks: their memory is transferred. */
async function takeAll(stream: ReadableStream<Uint8Array>): Promise<Buffer> {
  const chunks: Uint8Array[] = [];
  for await (const chunk of stream)
    chunks.push(structuredClone(chunk, { transfer: [chunk.buffer as ArrayBuffer] }));
  return Buffer.concat(chunks);
}

/** Redirects /first to /second, which answers with the body that it got. */
const upstream = await startHttp((req, res) => {
  const answer = async (): Promise<void> => {
    const body = await readAll(req);
    if (req.url === "/first") res.writeHead(307, { location: "/second" });
    res.end(req.url === "/first" ? "" : body);
  };
  void answer();
});
afterAll(() => void upstream.server.close());

const sendByFetch: ProxyOptions["fetch"] = async (url, { body, ...init }) =>
  fetch(url, {
    ...init,
    body: body instanceof ReadableStream ? new Uint8Array(await takeAll(body)) : (body ?? null),
  });

const ways: Record<string, Omit<Parameters<typeof createProxy>[0], "target">> = {
  "the proxy's own client": {},
  "the proxy's own client with reuseBuffers": { pool: { reuseBuffers: true } },
  "the proxy's own client with reuseBuffers and bodyLimit": {
    pool: { reuseBuffers: true },
    bodyLimit: LENGTH,
  },
  "a fetch that transfers the chunks": { fetch: sendByFetch },
};
const cases = Object.keys(ways).flatMap((way) =>
  ["sized", "chunked"].map((framing) => ({ way, framing })),
);

test.each(cases)(
  "a $framing body reaches the target of a 307 unchanged: $way",
  async ({ way, framing }) => {
    const proxy = createProxy({ target: upstream.url, followRedirects: true, ...ways[way] });
    const front = await startHttp(proxy.nodeHandler);
    try {
      const body = bodyOf(7, LENGTH);
      const headers = framing === "sized" ? { "content-length": LENGTH } : {};
      const outgoing = request(`${front.url}/first`, { method: "POST", headers, agent: false });
      for (let at = 0; at < LENGTH; at += 100_000) {
        outgoing.write(body.subarray(at, at + 100_000));
        await new Promise((resolve) => setImmediate(resolve));
      }
      outgoing.end();
      const [response] = (await once(outgoing, "response")) as [IncomingMessage];
      const received = await readAll(response);
      expect(response.statusCode).toBe(200);
      expect(received.equals(body)).toBe(true);
    } finally {
      front.server.close();
      await proxy.close();
    }
  },
);
