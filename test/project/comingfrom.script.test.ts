/** The scripts of docs/coming-from.md: the versions before and after the change do the same, with real servers. */
import { once } from "node:events";
import { createServer, type Server } from "node:http";
import type { AddressInfo } from "node:net";
import { afterAll, afterEach, beforeAll, describe, expect, test, vi } from "vitest";
import { WebSocketServer } from "ws";
import { sayHello } from "../helpers/handshake.ts";
import { listen } from "../helpers/serve.ts";
import { patience } from "../helpers/wait.ts";
import { expectAllRun, importBlock } from "./_blocks.ts";

const got: (string | string[] | undefined)[] = [];
const upstream = createServer((req, res) => {
  got.push(req.headers["x-app"]);
  if (req.url === "/fail") return res.destroy();
  res.writeHead(200, { server: "secret", "x-own": "1" }).end(`${req.method} ${req.url}`);
});
const sockets = new WebSocketServer({ server: upstream });
sockets.on("connection", (socket) =>
  socket.on("message", (data) => socket.send(data, { binary: false })),
);
let target = "";

beforeAll(async () => void (target = `http://127.0.0.1:${await listen(upstream)}`));
afterAll(() => upstream.close().closeAllConnections());
afterEach(() => void vi.restoreAllMocks());

describe.each([
  ["before", "docs/coming-from.md: http-proxy"],
  ["after", "docs/coming-from.md: http-proxy (2)"],
])("the script %s the change to Fetchway", (_, place) => {
  let server: Server;
  let origin = "";
  beforeAll(async () => {
    ({ server } = await importBlock<{ server: Server }>(place, {
      "http://127.0.0.1:4000": target,
      "const server": "export const server",
      "listen(3000)": 'listen(0, "127.0.0.1")',
    }));
    if (!server.listening) await once(server, "listening");
    origin = `127.0.0.1:${(server.address() as AddressInfo).port}`;
  });
  afterAll(() => server.close().closeAllConnections());

  test("changes the request and the response", async () => {
    const response = await fetch(`http://${origin}/a?b`, { method: "PUT", body: "x" });
    expect([response.status, await response.text()]).toEqual([200, "PUT /a?b"]);
    expect([response.headers.get("server"), response.headers.get("x-own")]).toEqual([null, "1"]);
    expect(got.at(-1)).toBe("shop");
  });

  test("answers a failure of the upstream with its own 502", async () => {
    const response = await fetch(`http://${origin}/fail`, { method: "POST" });
    expect([response.status, await response.text()]).toEqual([502, "Back soon."]);
  });

  test("forwards a WebSocket, and prints when it opens and closes", async () => {
    const printed: unknown[] = [];
    vi.spyOn(console, "log").mockImplementation((text: unknown) => void printed.push(text));
    expect(await sayHello(`ws://${origin}/live`)).toBe("hello");
    await expect.poll(() => printed, { timeout: patience }).toEqual(["open", "close"]);
  });
});

test("each script of docs/coming-from.md is run", () => expectAllRun("comingfrom.script.test.ts"));
