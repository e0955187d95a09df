/** A proxy on Node that tells what it holds: run with --expose-gc, asked by a line on stdin. */
import { getEventListeners } from "node:events";
import { createInterface } from "node:readline";
import { createProxy } from "#proxy";
import { serve } from "../_serve.ts";

declare const gc: () => void;

/** What is left when everything that was begun is over. */
export interface Holdings {
  /** Bytes in use after collection. */
  heap: number;
  /** Timers, sockets and the like that keep the process alive, by kind. */
  resources: Record<string, number>;
  /** Listeners on what outlives a request. */
  listeners: number;
  pool: { inUse: number; free: number; waiting: number; tunnels: number };
}

// One signal for all requests: whoever listens to it and does not stop leaks.
const { signal } = new AbortController();
const target = process.env["UPSTREAM"] ?? "";
const proxy = createProxy({ target, signal, pool: { freeSocketTimeout: 60_000 } });
const { server, port } = await serve("node", proxy.nodeHandler);
proxy.attach(server);

function listenersOf(emitter: NodeJS.EventEmitter): number {
  return emitter.eventNames().reduce((sum, name) => sum + emitter.listenerCount(name), 0);
}

async function measure(): Promise<Holdings> {
  // What is freed only when something else has been takes more than one turn.
  for (let round = 0; round < 5; round++) {
    gc();
    await new Promise(setImmediate);
  }
  const resources: Record<string, number> = {};
  for (const kind of process.getActiveResourcesInfo()) resources[kind] = (resources[kind] ?? 0) + 1;
  const origins = Object.values(proxy.stats()?.origins ?? {});
  return {
    heap: process.memoryUsage().heapUsed,
    resources,
    listeners:
      getEventListeners(signal, "abort").length + listenersOf(server) + listenersOf(process),
    pool: origins[0] ?? { inUse: 0, free: 0, waiting: 0, tunnels: 0 },
  };
}

console.log(JSON.stringify({ port }));
// The parent holds stdin open as long as it lives.
for await (const _ of createInterface({ input: process.stdin })) {
  console.log(JSON.stringify(await measure()));
}
process.exit();
