/** Interim responses to HTTP/2 clients, in each server that supports HTTP/2. */
import { createAdaptorServer } from "@hono/node-server";
import { connect as connectHttp2, createServer, type ClientHttp2Session } from "node:http2";
import { toNodeHandler } from "srvx/node";
import { expect, test } from "vitest";
import { createProxy } from "../../../runtimes/node.ts";
import { useApps } from "../../helpers/apps.ts";
import { until } from "../../helpers/wait.ts";

const apps = useApps();
const { upstream } = apps;

const HINT =
  "HTTP/1.1 103 Early Hints\r\nLink: </a>\r\nLink: </b>\r\nConnection: x-c\r\nX-C: 1\r\n\r\n";
/** Node refuses to send some fields twice over HTTP/2, such as ETag. */
const TWICE = "HTTP/1.1 103 Early Hints\r\nETag: 1\r\nETag: 2\r\n\r\n";

type Raw = readonly string[];

/** Sends a request, and keeps the raw fields of each interim response. */
function ask(session: ClientHttp2Session): { interim: Raw[]; status: () => unknown } {
  const interim: Raw[] = [];
  let final: unknown;
  const stream = session.request({ ":path": "/" });
  stream.on("headers", (_headers, _flags, raw: Raw) => void interim.push(raw));
  stream.on("response", (headers) => (final = headers[":status"]));
  stream.resume();
  return { interim, status: () => final };
}

const handlers = {
  node: () => createProxy({ target: upstream.url }).nodeHandler as unknown,
  srvx: () => {
    const { fetch } = createProxy({ target: upstream.url });
    return toNodeHandler((request) => fetch(request)) as unknown;
  },
};

test.each([...Object.keys(handlers), "hono"] as (keyof typeof handlers | "hono")[])(
  "an HTTP/2 client of %s gets a 103 with all its fields before the final response",
  async (kind) => {
    const server =
      kind === "hono"
        ? createAdaptorServer({
            fetch: createProxy({ target: upstream.url }).fetch,
            createServer: createServer as never,
            overrideGlobalObjects: false,
          })
        : createServer({}, handlers[kind]() as never);
    upstream.script = (call) => call.write(HINT + TWICE);
    const session = connectHttp2(`http://127.0.0.1:${await apps.listen(server)}`);
    try {
      const { interim, status } = ask(session);
      await until(() => interim.length > 1, "103");
      expect(status()).toBe(undefined);
      expect(interim).toEqual([
        [":status", "103", "link", "</a>", "link", "</b>"],
        [":status", "103", "etag", "1, 2"],
      ]);
      (await upstream.call()).reply(200, [], "final");
      await until(() => status() === 200, "the final response");
    } finally {
      session.destroy();
    }
  },
);
