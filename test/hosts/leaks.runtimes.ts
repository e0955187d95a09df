/**
 * A proxy on Bun or Deno that reports its memory and connections for each line on stdin. Its server is the runtime's own or,
 * with the argument `nodehttp`, one of `node:http`.
 */
import process from "node:process";
import { createInterface } from "node:readline";
import { createProxy, type Proxy } from "#fetchway";
import { createProxy as createNodeProxy } from "../../runtimes/node.ts";
import { serve } from "../helpers/serve.ts";
import { serveBun } from "../helpers/serve.bun.ts";
import { serveDeno } from "../helpers/serve.deno.ts";
import type { Holdings } from "./leaks.ts";

declare const Bun: { gc(isFull: boolean): void } | undefined;
/** This function exists on Deno when it runs with --v8-flags=--expose-gc. */
declare const gc: () => void;

const collect = typeof Bun === "undefined" ? gc : () => Bun?.gc(true);
const options = { target: process.env["UPSTREAM"] ?? "" };

async function start(): Promise<{ proxy: Pick<Proxy, "stats">; port: number }> {
  if (process.argv[2] === "nodehttp") {
    const proxy = createNodeProxy(options);
    const { server, port } = await serve("node", proxy.nodeHandler);
    proxy.attach(server);
    return { proxy, port };
  }
  const proxy = createProxy(options);
  return { proxy, port: typeof Bun === "undefined" ? serveDeno(proxy.fetch) : serveBun(proxy) };
}

const { proxy, port } = await start();

async function measure(): Promise<Pick<Holdings, "heap" | "pool">> {
  // Collect several times, because some objects can only be freed after others.
  for (let round = 0; round < 5; round++) {
    collect();
    await new Promise((resolve) => setTimeout(resolve, 1));
  }
  const [pool] = Object.values(proxy.stats()?.origins ?? {});
  return {
    heap: process.memoryUsage().heapUsed,
    pool: pool ?? { inUse: 0, free: 0, waiting: 0, tunnels: 0 },
  };
}

console.log(JSON.stringify({ port }));
// The parent holds stdin open, so this process ends when its parent ends.
for await (const _ of createInterface({ input: process.stdin })) {
  console.log(JSON.stringify(await measure()));
}
process.exit();
