/** Fetchway's own client ignores `HTTP_PROXY`, and the `fetch` of a runtime uses it (Node's only with `NODE_USE_ENV_PROXY=1`). */
import { createServer } from "node:http";
import { afterAll, beforeAll, expect, test } from "vitest";
import { startProgram } from "../../helpers/program.ts";
import { listen } from "../../helpers/serve.ts";

const forwardProxy = createServer((_, res) => void res.end("by the proxy"));
// Node's `fetch` asks the forward proxy for a tunnel.
forwardProxy.on("connect", (_, socket) => {
  socket.write("HTTP/1.1 200 OK\r\n\r\n");
  forwardProxy.emit("connection", socket);
});
let url = "";
beforeAll(async () => {
  url = `http://127.0.0.1:${await listen(forwardProxy)}`;
});
afterAll(() => forwardProxy.close().closeAllConnections());

test.each([
  ["node", [], { NODE_USE_ENV_PROXY: "1" }],
  ["bun", [], {}],
  ["deno", ["run", "-A"], {}],
] as const)(
  "on %s, Fetchway's own client ignores HTTP_PROXY, and the runtime's fetch uses HTTP_PROXY",
  async (tool, flags, variables) => {
    const env: Record<string, string> = { HTTP_PROXY: url, http_proxy: url, ...variables };
    await using program = startProgram(
      tool,
      [...flags, "test/runtimes/fetch/_httpproxy.program.ts"],
      env,
    );
    await program.ended();
    expect(program.output().trim().split("\n")).toEqual([
      "502 Bad Gateway: dns_error",
      "200 by the proxy",
    ]);
  },
);

test("Node's fetch ignores HTTP_PROXY if NODE_USE_ENV_PROXY is 0", async () => {
  const env = { HTTP_PROXY: url, NODE_USE_ENV_PROXY: "0" };
  await using program = startProgram("node", ["test/runtimes/fetch/_httpproxy.program.ts"], env);
  await program.ended();
  expect(program.output().trim().split("\n")).toEqual(Array(2).fill("502 Bad Gateway: dns_error"));
});
