/**
 * A server that counts its work. `startWork` starts it in a separate process: `node _host.ts <host> <mode>`.
 *
 * It prints its port. Then it answers each line on stdin with a line of JSON: its work since the previous line.
 */
import { createHook } from "node:async_hooks";
import { existsSync, readFileSync } from "node:fs";
import { Session } from "node:inspector/promises";
import { performance } from "node:perf_hooks";
import { createInterface } from "node:readline";
import { getHeapSpaceStatistics } from "node:v8";
import type { ProxyOptions, Transport } from "#fetchway";
import { serve, type ServerKind } from "../helpers/serve.ts";

const [, , host = "", mode = ""] = process.argv;
const upstream = process.env["UPSTREAM"] ?? "";
const counts: Record<string, number> = {};

function count(what: string): void {
  counts[what] = (counts[what] ?? 0) + 1;
}

/** The web classes whose objects are counted: the fast paths avoid creating them. */
const WEB = ["Headers", "Request", "Response", "ReadableStream", "URL", "AbortController"] as const;
if (mode === "counts") {
  for (const name of WEB) {
    const Original = globalThis[name] as new () => object;
    Object.assign(globalThis, {
      [name]: new Proxy(Original, {
        construct(target, args, newTarget) {
          count(name);
          return Reflect.construct(target, args, newTarget) as object;
        },
      }),
    });
  }
  createHook({ init: (_, type) => count(type) }).enable();
}

/** How the proxy read each request and built its response, as observed inside the handler. */
const seen: Record<string, unknown>[] = [];

// Import these modules only now, so that they use the counting classes in place of the globals.
const { proxyFetch, createProxy } = await import("#fetchway");
const { nodeSideOf, readRequest } = await import("../../runtimes/node/nodeincoming.ts");
const { IncomingBody } = await import("../../runtimes/node/incomingbody.ts");

const module = process.env["TRANSPORT"] ?? "";
const made = module === "" ? undefined : ((await import(module)) as { transport: Transport });
const { balance } = await import("../../src/upstreams/balance.ts");

/** The options whose cost is counted, by the names that `startWork` gets as `part`. */
const parts: Record<string, ProxyOptions> = {
  trustProxy: { trustProxy: ["127.0.0.0/8"] },
  startTrace: { startTrace: true },
  serverTiming: { serverTiming: true },
  onRequestEnd: { onRequestEnd() {} },
  onRequest: { onRequest: (draft) => draft.headers.set("x-a", "1") },
  onResponse: { onResponse: (response) => response.headers.set("x-a", "1") },
};
const part = process.env["PART"] ?? "";
const target = part === "balance" ? balance([upstream]) : upstream;
const proxyOptions: ProxyOptions = {
  ...(made !== undefined && { transport: made.transport }),
  ...parts[part],
};

async function handle(request: Request): Promise<Response> {
  if (mode !== "paths") return proxyFetch(request, target, proxyOptions);
  const side = nodeSideOf(request);
  const incoming = readRequest(request, undefined, {});
  const { body } = incoming;
  const how = {
    headers: side !== undefined && incoming.headers === side.req.rawHeaders ? "raw" : "copied",
    body: body === null ? "none" : body instanceof IncomingBody ? "raw" : "stream",
    address: incoming.address,
    response: "built",
  };
  const response = await proxyFetch(request, target, proxyOptions);
  const asked = (response as { _toNodeResponse?: () => object })._toNodeResponse;
  if (asked !== undefined) {
    Object.assign(response, {
      _toNodeResponse() {
        how.response = "lazy";
        return asked.call(response);
      },
    });
  }
  seen.push(how);
  return response;
}

/** Starts the server. It loads the framework only now, so that the framework uses the counting classes as well. */
async function start(): Promise<number> {
  const kind = host as ServerKind;
  if (kind === "node") {
    const { nodeHandler } = createProxy({ target, ...proxyOptions });
    return (await serve(kind, nodeHandler)).port;
  }
  return (await serve(kind, handle)).port;
}

const session = new Session();
if (mode === "way") {
  session.connect();
  await session.post("Profiler.enable");
  await session.post("Profiler.startPreciseCoverage", { callCount: true });
}

/**
 * Returns the files of src/ and runtimes/ with functions that were called since the last report, and the names of these
 * functions.
 */
async function takeFiles(): Promise<Record<string, string[]>> {
  const { result } = await session.post("Profiler.takePreciseCoverage");
  const files: Record<string, string[]> = {};
  for (const { url, functions } of result) {
    const [, file] = /\/((?:src|runtimes)\/[\w./-]+\.ts)$/.exec(url) ?? [];
    if (file === undefined) continue;
    const called = functions.filter(({ ranges }) => (ranges[0]?.count ?? 0) > 0);
    if (called.length > 0) files[file] = called.map(({ functionName }) => functionName);
  }
  return files;
}

/** The file in which Linux counts the read and write calls of this process. Other systems have no such file. */
const IO = "/proc/self/io";
const hasIo = existsSync(IO);

/**
 * Returns the system calls of this process since it started: `read` and its variants (but not `recv`), `write` and its
 * variants, and turns of the event loop, each of which is one call of `epoll_wait` or its equivalent. Node uses
 * `read`, `write` and `writev` for TCP sockets.
 */
function systemCalls(): Record<string, number> {
  const { loopCount } = performance.nodeTiming.uvMetricsInfo;
  if (!hasIo) return { loopTurns: loopCount };
  const io = readFileSync(IO, "latin1");
  const read = Number(/^syscr: (\d+)$/m.exec(io)?.[1]);
  const write = Number(/^syscw: (\d+)$/m.exec(io)?.[1]);
  return { loopTurns: loopCount, reads: read, writes: write };
}

/** Returns the number of bytes in V8's old generation. */
function oldBytes(): number {
  const old = getHeapSpaceStatistics().find((space) => space.space_name === "old_space");
  return old?.space_used_size ?? 0;
}

console.log(await start());
let heap = 0;
let old = 0;
let system = mode === "system" ? systemCalls() : {};
for await (const _ of createInterface({ input: process.stdin })) {
  const report: Record<string, unknown> = { ...counts, seen: [...seen] };
  if (mode === "way") report["files"] = await takeFiles();
  if (mode === "system") {
    const now = systemCalls();
    for (const [kind, total] of Object.entries(now)) report[kind] = total - (system[kind] ?? 0);
  }
  if (mode === "heap") {
    report["bytes"] = process.memoryUsage().heapUsed - heap;
    globalThis.gc?.();
    heap = process.memoryUsage().heapUsed;
  }
  if (mode === "old") {
    report["bytes"] = oldBytes() - old;
    old = oldBytes();
  }
  console.log(JSON.stringify(report));
  for (const name of Object.keys(counts)) counts[name] = 0;
  seen.length = 0;
  if (mode === "system") system = systemCalls();
}
process.exit();
