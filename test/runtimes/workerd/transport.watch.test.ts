/** Response bodies, encoded ones included, that the proxy itself reads in a Worker because `idleTimeout` is set. */
import { once } from "node:events";
import { gunzipSync, gzipSync } from "node:zlib";
import { describe, expect, test } from "vitest";
import { pause, until, within } from "../../helpers/wait.ts";
import { request } from "../../helpers/wire.ts";
import { useWorker } from "./_workerd.ts";

const worker = `
import { createProxy } from "./runtimes/workerd.ts";
let watching;
let patient;

const ways = {
  "/plain": (request) => watching.fetch(request),
  "/clone": async (request) => (await watching.fetch(request)).clone(),
  "/twice": async (request) => (await watching.fetch(request)).clone().clone(),
  async "/init"(request) {
    const response = await watching.fetch(request);
    return new Response(response.body, response);
  },
  async "/cancel"(request, context) {
    context.waitUntil(new Promise((resolve) => setTimeout(resolve, 5000)));
    const response = await patient.fetch(request);
    await response.body.cancel();
    return new Response("cancelled");
  },
};

export default {
  fetch(request, env, context) {
    watching ??= createProxy({ target: env.UPSTREAM, idleTimeout: 1000 });
    patient ??= createProxy({ target: env.UPSTREAM, idleTimeout: 60_000 });
    return ways[new URL(request.url).pathname](request, context);
  },
};
`;
const { upstream, send } = useWorker(worker);

test.each(["plain", "init", "clone", "twice"])(
  "an encoded body is unchanged after a Worker builds another response from it: %s",
  async (way) => {
    const bytes = gzipSync("a body that compresses well; ".repeat(100));
    upstream.script = (call) => call.reply(200, [["Content-Encoding", "gzip"]], bytes);
    const answer = await (await send(request("GET", `/${way}`))).read();
    expect(answer.get("content-encoding")).toBe("gzip");
    expect(answer.body.equals(bytes)).toBe(true);
    expect(gunzipSync(answer.body).length).toBe(2900);
  },
);

describe("response bodies", () => {
  const half = "HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 10000\r\n\r\nhalf";

  test("a response body is read no faster than the client reads", async () => {
    let sent = 0;
    // The buffers of the sockets hold up to 40 MiB, more on a busy machine.
    const size = 256 * 1024 * 1024;
    upstream.script = async (call) => {
      call.write(`HTTP/1.1 200 OK\r\nContent-Length: ${size}\r\n\r\n`);
      for (; sent < size; sent += 65_536) {
        call.write(Buffer.alloc(65_536));
        const { socket } = call.link;
        if (socket.writableNeedDrain) {
          await Promise.race([once(socket, "drain"), call.link.closed]);
        }
        if (call.link.isClosed) return;
      }
    };
    const client = await send(request("GET", "/plain"));
    client.socket.pause();
    await until(() => sent > 0, "the first chunk");
    let before = -1;
    // Wait until the socket buffers are full and no further bytes are sent.
    while (before !== sent) {
      before = sent;
      await pause(300);
    }
    expect(sent).toBeLessThan(size / 2);
    client.leave("RST");
    await within(upstream.calls[0]?.link.closed as Promise<void>, "the connection closed");
  });

  test.each(["FIN", "RST"] as const)(
    "a response body is cancelled when the client disconnects by %s",
    async (how) => {
      upstream.script = (call) => call.write(half);
      const client = await send(request("GET", "/plain"));
      const call = await upstream.call();
      await until(() => call.link.socket.bytesWritten > 0, "the head");
      client.leave(how);
      await within(call.link.closed, "the upstream's connection closed");
    },
  );

  test("the upstream's connection is closed when the Worker cancels a response body", async () => {
    upstream.script = (call) => call.write(half);
    const answer = await (await send(request("GET", "/cancel"))).read();
    expect(answer.text).toBe("cancelled");
    await within(upstream.calls[0]?.link.closed as Promise<void>, "the connection closed", 4000);
  });

  test("a response body that the upstream truncates never looks complete", async () => {
    upstream.script = (call) => {
      call.write(half);
      call.close();
    };
    const answer = await (await send(request("GET", "/plain"))).read();
    expect(answer).toMatchObject({ status: 200, text: "half", cut: true });
  });
});
