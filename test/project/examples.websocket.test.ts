/** The examples with WebSockets, also those over undici, started as users start them. The clients are `ws` and Node's own. */
import { once } from "node:events";
import { rmSync, writeFileSync } from "node:fs";
import { afterAll, afterEach, beforeAll, expect, test } from "vitest";
import type { PoolStats } from "#fetchway";
import { copyPathOf, readLinkedExample } from "./_example.ts";
import { echoMessages, sayHello } from "../helpers/handshake.ts";
import { type Program, startProgram } from "../helpers/program.ts";
import { findPort } from "../helpers/serve.ts";
import { Upstream } from "../helpers/upstream.ts";
import { until, within } from "../helpers/wait.ts";

const upstream = new Upstream();
beforeAll(() => upstream.listen());
afterEach(() => upstream.reset());
afterAll(() => upstream.stop());

/** Says hello with the runtime's own WebSocket. */
async function sayHelloItself(url: string): Promise<string> {
  const socket = new WebSocket(url);
  await within(once(socket, "open"), "the opening");
  let answer = "";
  socket.addEventListener("message", ({ data }) => (answer = String(data)));
  socket.send("hello");
  await until(() => answer !== "", "the answer");
  socket.close();
  return answer;
}

/** For each example, a function that starts it on a port as its users do. */
const servers: Record<string, (file: string, port: string) => Program> = {
  "websocket-h3": startNode,
  "websocket-hono": startNode,
  "websocket-express": startNode,
  "websocket-fastify": startNode,
  "undici-h3": startNode,
  "undici-hono": startNode,
  "websocket-bun": (file, port) => startProgram("bun", ["run", file], { PORT: port }),
  "websocket-deno": (file, port) =>
    startProgram("deno", ["serve", "-A", "--host", "127.0.0.1", "--port", port, file]),
  "websocket-workers": (file, port) =>
    startProgram("wrangler", ["dev", "--port", port, "--ip", "127.0.0.1", file], {
      WRANGLER_SEND_METRICS: "false",
    }),
};

function startNode(file: string, port: string): Program {
  return startProgram("node", [file], { PORT: port });
}

test.each(Object.entries(servers))("%s.ts carries requests and WebSockets", async (name, start) => {
  const copy = copyPathOf(name);
  const source = readLinkedExample(name);
  writeFileSync(copy, source.replaceAll("http://127.0.0.1:4000", upstream.url));
  const port = await findPort();
  try {
    await using program = start(copy, String(port));
    await program.printed(
      name === "websocket-workers" ? /Ready on/ : /http:\/\/(?:127\.0\.0\.1|localhost):\d+/,
    );
    const origin = `127.0.0.1:${port}`;
    expect(await (await fetch(`http://${origin}/health`)).text()).toBe("ok");
    const answer = await fetch(`http://${origin}/api/echo`, { method: "POST", body: "x" });
    expect(await answer.text()).toBe("x");
    expect(upstream.calls.map((call) => call.target)).toEqual(["/api/echo"]);
    echoMessages(upstream);
    expect(await sayHello(`ws://${origin}/api/socket?a`)).toBe("hello");
    expect(await sayHelloItself(`ws://${origin}/api/socket?a`)).toBe("hello");
    expect(upstream.calls.at(-1)?.target).toBe("/api/socket?a");
    if (!name.startsWith("undici-")) return;
    const stats = (await (await fetch(`http://${origin}/connections`)).json()) as PoolStats;
    expect(stats).toMatchObject({ requests: 3, tunnels: 2 });
  } finally {
    rmSync(copy);
  }
});
