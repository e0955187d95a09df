/** Trailer fields between HTTP/2 clients and HTTP/1.1 upstreams. */
import { connect as connectHttp2, createServer, type ClientHttp2Session } from "node:http2";
import { afterEach, expect, test } from "vitest";
import { rfc } from "../../conformance/rfc.ts";
import { createProxy } from "../../../runtimes/node.ts";
import { useApps } from "../../helpers/apps.ts";
import { until } from "../../helpers/wait.ts";
import { chunk } from "../../helpers/wire.ts";

const apps = useApps();
const { upstream } = apps;

let session: ClientHttp2Session | undefined;
afterEach(() => session?.destroy());

async function start(): Promise<ClientHttp2Session> {
  const { nodeHandler } = createProxy({ target: upstream.url });
  const port = await apps.listen(createServer({}, nodeHandler));
  session = connectHttp2(`http://127.0.0.1:${port}`);
  return session;
}

test.each([false, true])(
  "trailers of a response reach the HTTP/2 client (late: %s)",
  async (isLate) => {
    // Node refuses to send some fields twice, such as ETag.
    const etags = "ETag: 3\r\nETag: 4\r\n";
    const section = `0\r\nX-Sum: 1\r\nSet-Cookie: a=b\r\nX-Sum: 2\r\n${isLate ? etags : ""}\r\n`;
    upstream.script = (call) => {
      call.write("HTTP/1.1 200 OK\r\nTrailer: X-Sum\r\nTransfer-Encoding: chunked\r\n\r\n");
      call.write(chunk("hello"), isLate ? "" : section);
    };
    const stream = (await start()).request({ ":path": "/", te: "trailers" });
    let raw: readonly string[] = [];
    let text = "";
    stream.on("trailers", (_headers, _flags, list: string[]) => (raw = list));
    stream.on("data", (data: Buffer) => (text += data.toString()));
    if (isLate) {
      await until(() => text === "hello", "the first chunk");
      (await upstream.call()).write(section);
    }
    await until(() => raw.length > 0, "the trailers");
    expect(raw).toEqual(isLate ? ["x-sum", "1, 2", "etag", "3, 4"] : ["x-sum", "1", "x-sum", "2"]);
    await until(() => stream.closed, "the end of the stream");
    expect(stream.rstCode).toBe(0);
    expect(apps.only().get("te")).toBe("trailers");
  },
);

test("RFC 9113 §8.1: pseudo-header fields never pass into the trailers of a response", async () => {
  rfc("9113-8.1-trailers");
  upstream.script = (call) => {
    call.write("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", chunk("hello"));
  };
  const stream = (await start()).request({ ":path": "/", te: "trailers" });
  let raw: readonly string[] = [];
  let text = "";
  stream.on("trailers", (_headers, _flags, list: string[]) => (raw = list));
  stream.on("data", (data: Buffer) => (text += data.toString()));
  stream.on("error", () => {});
  await until(() => text === "hello", "the first chunk");
  (await upstream.call()).write("0\r\n:status: 204\r\nX-Sum: 1\r\n\r\n");
  await until(() => stream.closed, "the end of the stream");
  expect(raw).toEqual([]);
  // The trailer section is malformed, so the response is not complete.
  expect(stream.rstCode).not.toBe(0);
});

test("trailers of an HTTP/2 request reach the upstream", async () => {
  const stream = (await start()).request(
    { ":method": "POST", ":path": "/", trailer: "x-sum" },
    { waitForTrailers: true },
  );
  stream.on("wantTrailers", () => stream.sendTrailers({ "x-sum": ["1", "2"], cookie: "a=b" }));
  stream.resume().end("hello");
  const call = await upstream.call();
  await call.done;
  expect(call).toMatchObject({ text: "hello", state: "complete" });
  expect(call.trailers).toEqual([
    ["x-sum", "1"],
    ["x-sum", "2"],
  ]);
  expect(call.get("trailer")).toBe("x-sum");
});
