/**
 * A proxy on Node that reports its memory, timers and listeners for each line on stdin; run with --expose-gc. Its argument
 * is the kind of its server, by default `node`.
 */
import { getEventListeners } from "node:events";
import { createInterface } from "node:readline";
import { createProxy } from "#fetchway";
import { type Handlers, serve, type ServerKind } from "../helpers/serve.ts";

declare const gc: () => void;

/** Resources that are in use after all requests have ended. */
export interface Holdings {
  /** The size of the heap in bytes after garbage collection. */
  heap: number;
  /** The number of timers, sockets and other resources that keep the process running, by kind. */
  resources: Record<string, number>;
  /** The number of listeners on objects that outlive a request. */
  listeners: number;
  pool: { inUse: number; free: number; waiting: number; tunnels: number };
}

// All requests share one signal, so each listener that is not removed from it is a leak.
const { signal } = new AbortController();
const target = process.env["UPSTREAM"] ?? "";
const proxy = createProxy({ target, signal, pool: { freeSocketTimeout: 60_000 } });
const serverKind = (process.argv[2] ?? "node") as ServerKind;
const handler: unknown = serverKind === "node" ? proxy.nodeHandler : proxy.fetch;
const { server, port } = await serve(serverKind, handler as Handlers[ServerKind]);
proxy.attach(server);

function listenersOf(emitter: NodeJS.EventEmitter): number {
  return emitter.eventNames().reduce((sum, name) => sum + emitter.listenerCount(name), 0);
}

async function measure(): Promise<Holdings> {
  // Collect several times, because some objects can only be freed after others.
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
// The parent holds stdin open, so this process ends when its parent ends.
for await (const _ of createInterface({ input: process.stdin })) {
  console.log(JSON.stringify(await measure()));
}
process.exit();
