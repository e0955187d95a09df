/** A program ends when its work is done, on Node, Bun and Deno: neither idle connections nor timers keep it running. */
import { afterAll, beforeAll, expect, test } from "vitest";
import { EVALUATE, startProgram } from "../helpers/program.ts";
import { Upstream } from "../helpers/upstream.ts";
import { accept } from "../helpers/websocket.ts";

const upstream = new Upstream();
beforeAll(() => upstream.listen());
afterAll(() => upstream.stop());

// Because the target has a host name, the proxy sets a timer for the next lookup.
const program = (entry: string): string => `
import { createProxy } from ${JSON.stringify(new URL(`../../runtimes/${entry}.ts`, import.meta.url).href)};
const target = ${JSON.stringify(upstream.url.replace("127.0.0.1", "localhost"))};
const proxy = createProxy({ target, pool: { dns: { ttl: 3_600_000 } } });
const { status } = await proxy.fetch(new Request("http://proxy.test/"));
console.log(status);
`;

test.each(Object.entries(EVALUATE))(
  "%s: a program ends although the proxy has an idle connection",
  async (tool, args) => {
    await using child = startProgram(tool, [...args, program(tool)]);
    await child.printed(/200/);
    const since = performance.now();
    await child.ended();
    expect(child.output()).toBe("200\n");
    // The proxy's timers fire after a minute or later: a program that waited for one would end too late.
    expect(performance.now() - since).toBeLessThan(30_000);
  },
);

test("bun: a program ends although its upstream has closed a WebSocket in the packet of the 101", async () => {
  upstream.script = async (call) => {
    const { socket } = call.link;
    socket.cork();
    (await accept(call)).close(4001);
    socket.uncork();
  };
  const entry = new URL("../../runtimes/bun.ts", import.meta.url).href;
  const code = `
    import { createProxy } from ${JSON.stringify(entry)};
    const { fetch, websocket } = createProxy({
      target: ${JSON.stringify(upstream.url)},
      tunnelTimeout: 3_600_000,
      tunnelCloseTimeout: 3_600_000,
    });
    const server = Bun.serve({ port: 0, hostname: "127.0.0.1", fetch, websocket });
    new WebSocket("ws://127.0.0.1:" + server.port).onclose = ({ code }) => {
      console.log(code);
      server.stop();
    };
  `;
  await using child = startProgram("bun", [...EVALUATE.bun, code]);
  await child.printed(/4001/);
  await child.ended();
});
