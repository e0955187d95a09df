/**
 * Three upstreams of which one fails, under load, on the runtime that runs this program. The program prints one line of
 * JSON for each call of `run`.
 */
import { once } from "node:events";
import { createServer, type Server } from "node:http";
import type { AddressInfo, Socket } from "node:net";
import { createProxy } from "#fetchway";
import { balance } from "../../../src/upstreams/balance.ts";

export type Fault = "killed" | "hangs" | "slow" | "500" | "flaps";

/** The measurements of one call of `run`. */
export interface Outcome {
  readonly fault: Fault;
  readonly attemptTimeout: number;
  /** How often each status occurred in the responses to the GETs that began after the fault. Only GETs may be sent again. */
  readonly gets: Record<number, number>;
  /** How often each status occurred in the responses to the last of these GETs. */
  readonly lastGets: Record<number, number>;
  /** For each upload that reached an upstream, the number of times that it did. */
  readonly timesSeen: readonly number[];
  readonly state: string;
  /** The number of requests that still count as running when all have ended. */
  readonly active: number;
  /** Milliseconds that the slowest GET of those in `lastGets` took. */
  readonly slowest: number;
  /** The 99th percentile of the durations of the requests before the fault, in milliseconds. */
  readonly p99Before: number;
  /** The same percentile for the requests that began after the ejection; undefined without an ejection. */
  readonly p99After: number | undefined;
  /** The number of requests that began after the ejection. */
  readonly countAfter: number;
  /** The number of requests after the ejection that the ejected upstream received. */
  readonly strayed: number;
}

/** Milliseconds until a slowed upstream responds. */
const SLOW = 4_000;
const CONCURRENCY = 6;
const BEFORE = 120;
const AFTER = 240;
const LAST = 90;

class Host {
  fault: Fault | undefined;
  readonly uploads: string[] = [];
  readonly paths: Set<string> = new Set();
  readonly #sockets: Set<Socket> = new Set();
  readonly #server: Server;
  #requests = 0;

  constructor() {
    this.#server = createServer((req, res) => {
      this.#requests++;
      this.paths.add(req.url ?? "");
      if (req.method === "POST") this.uploads.push(req.url ?? "");
      const { fault } = this;
      if (fault === "hangs") return;
      if (fault === "flaps" && this.#requests % 2 === 0) return void req.socket.destroy();
      const respond = (): void => void res.writeHead(fault === "500" ? 500 : 200).end("ok");
      if (fault === "slow") setTimeout(respond, SLOW);
      else respond();
    });
    this.#server.on("connection", (socket) => {
      this.#sockets.add(socket);
      socket.on("close", () => this.#sockets.delete(socket));
      socket.on("error", () => {});
    });
  }

  async listen(): Promise<string> {
    this.#server.listen(0, "127.0.0.1");
    await once(this.#server, "listening");
    return `http://127.0.0.1:${(this.#server.address() as AddressInfo).port}`;
  }

  /** Refuses connections from now on, and breaks off those that are open. */
  kill(): void {
    this.#server.close();
    for (const socket of this.#sockets) socket.destroy();
  }
}

async function run(fault: Fault, attemptTimeout: number): Promise<Outcome> {
  const hosts = [new Host(), new Host(), new Host()];
  const urls = await Promise.all(hosts.map((host) => host.listen()));
  // The budget has separate tests, because the number of attempts that fail before an ejection depends on the machine.
  const target = balance(urls, { policy: "round_robin", retryBudget: { perSecond: 1_000 } });
  const proxy = createProxy({
    target,
    attemptTimeout,
    // Only requests that hang may reach this limit.
    timeout: fault !== "hangs" ? 10 * SLOW : attemptTimeout > 0 ? 5_000 : 2_500,
    // Two connections in a row may break before a request reaches another upstream.
    retry: { attempts: fault === "flaps" ? 2 : 1, statusCodes: fault === "500" ? [500] : [] },
  });
  let sent = 0;
  const begun: { isGet: boolean; status: number; took: number; isAfter: boolean }[] = [];

  async function ask(): Promise<void> {
    const n = sent++;
    if (n === BEFORE) {
      const [first] = hosts as [Host, Host, Host];
      first.fault = fault;
      if (fault === "killed") first.kill();
    }
    const isGet = n % 10 !== 0;
    const init = isGet ? {} : { method: "POST", body: "x" };
    const isAfter = target.states()[0]?.state === "ejected";
    const start = performance.now();
    const response = await proxy.fetch(new Request(`http://proxy.test/${n}`, init));
    await response.arrayBuffer();
    begun[n] = { isGet, status: response.status, took: performance.now() - start, isAfter };
  }

  async function work(): Promise<void> {
    while (sent < BEFORE + AFTER) await ask();
  }
  await Promise.all(Array.from({ length: CONCURRENCY }, work));
  const gets = begun.slice(BEFORE).filter(({ isGet }) => isGet);
  const last = begun.slice(-LAST).filter(({ isGet }) => isGet);
  const seen = Map.groupBy(
    hosts.flatMap(({ uploads }) => uploads),
    (path) => path,
  );
  const after = begun.filter(({ isAfter }) => isAfter);
  const outcome: Outcome = {
    fault,
    attemptTimeout,
    gets: count(gets.map(({ status }) => status)),
    lastGets: count(last.map(({ status }) => status)),
    timesSeen: Array.from(seen.values(), ({ length }) => length),
    state: target.states()[0]?.state ?? "",
    active: target.active,
    slowest: Math.round(Math.max(...last.map(({ took }) => took))),
    p99Before: percentile(begun.slice(0, BEFORE).map(({ took }) => took)),
    p99After: after.length === 0 ? undefined : percentile(after.map(({ took }) => took)),
    countAfter: after.length,
    strayed: begun.filter(({ isAfter }, n) => isAfter && hosts[0]?.paths.has(`/${n}`)).length,
  };
  proxy.destroy();
  for (const host of hosts) host.kill();
  return outcome;
}

function percentile(times: number[]): number {
  const sorted = times.toSorted((a, b) => a - b);
  return Math.round(sorted[Math.floor(sorted.length * 0.99)] ?? NaN);
}

function count(statuses: number[]): Record<number, number> {
  const counts: Record<number, number> = {};
  for (const status of statuses) counts[status] = (counts[status] ?? 0) + 1;
  return counts;
}

const outcomes = await Promise.all([
  run("killed", 0),
  run("flaps", 0),
  run("500", 0),
  run("hangs", 1_500),
  run("slow", 1_500),
  run("hangs", 0),
]);
for (const outcome of outcomes) console.log(JSON.stringify(outcome));
process.exit(0);
