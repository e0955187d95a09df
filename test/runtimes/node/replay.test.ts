/** Request bodies that are sent again on Node, where chunks are Buffers whose memory may be freed after sending. */
import { once } from "node:events";
import { type IncomingMessage, request } from "node:http";
import { afterAll, expect, test } from "vitest";
import { createProxy } from "../../../runtimes/node.ts";
import type { ProxyOptions } from "../../../src/options/proxyoptions.ts";
import { bodyOf, startHttp } from "./_kept.ts";

const LENGTH = 700_000;

async function readAll(message: AsyncIterable<Uint8Array>): Promise<Buffer> {
  const chunks: Uint8Array[] = [];
  for await (const chunk of message) chunks.push(chunk);
  return Buffer.concat(chunks);
}

/** Reads a body and transfers the memory of its chunks, as code that owns them may do. */
async function takeAll(stream: ReadableStream<Uint8Array>): Promise<Buffer> {
  const chunks: Uint8Array[] = [];
  for await (const chunk of stream)
    chunks.push(structuredClone(chunk, { transfer: [chunk.buffer as ArrayBuffer] }));
  return Buffer.concat(chunks);
}

/** An upstream that redirects /first to /second, and answers /second with the request's body. */
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
  "the proxy's own client with bodyLimit": { bodyLimit: LENGTH },
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
