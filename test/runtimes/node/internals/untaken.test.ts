/** `countUntaken`: the number of bytes of a response that are still unsent while the client reads slowly. */
import { once } from "node:events";
import { createServer, get, type IncomingMessage, type ServerResponse } from "node:http";
import { createServer as createTlsServer, get as getTls } from "node:https";
import { expect, test } from "vitest";
import { countUntaken } from "../../../../runtimes/node/internals/untaken.ts";
import { makeCertificate } from "../../../helpers/certificate.ts";
import { listen } from "../../../helpers/serve.ts";
import { until } from "../../../helpers/wait.ts";

test.each(["http", "https"])(
  "the number of unsent bytes decreases while the client reads one large chunk: %s",
  async (scheme) => {
    const isTls = scheme === "https";
    const server = isTls ? createTlsServer(await makeCertificate()) : createServer();
    const port = await listen(server);
    const asked = (isTls ? getTls : get)({
      port,
      host: "127.0.0.1",
      agent: false,
      rejectUnauthorized: false,
    });
    asked.on("error", () => {});
    const [, res] = (await once(server, "request")) as [IncomingMessage, ServerResponse];
    const size = 64 * 1024 * 1024;
    res.writeHead(200, { "content-length": size });
    let isWritten = false;
    res.write(Buffer.alloc(size), () => (isWritten = true));
    const [message] = (await once(asked, "response")) as [IncomingMessage];
    message.pause();
    const before = countUntaken(res);
    expect(before).toBeGreaterThan(0);
    // Node's own counter does not change before the whole chunk is sent.
    const { writableLength } = res;
    message.resume();
    await until(() => countUntaken(res) < before || isWritten, "progress");
    expect([isWritten, res.writableLength]).toEqual([false, writableLength]);
    asked.destroy();
    res.destroy();
    server.close();
  },
);

test("the number of unsent bytes is Node's `writableLength` if the response has no socket handle", () => {
  expect(countUntaken({ writableLength: 7, socket: null } as ServerResponse)).toBe(7);
  const socket = { _handle: null };
  expect(countUntaken({ writableLength: 7, socket } as unknown as ServerResponse)).toBe(7);
});
