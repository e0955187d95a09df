/**
 * Sends GET requests at a fixed rate, like pacer/main.go, for machines without Go. Node's timers wait for whole
 * milliseconds, so this program looks at the clock all the time, and needs a whole core.
 */
import { once } from "node:events";
import { Worker } from "node:worker_threads";
import { Client } from "undici";
import { sleep } from "../program.ts";
import { type Pace, type PaceSettings, dueAt } from "./latency.ts";

interface Pending {
  /** Negative during the lead. */
  readonly index: number;
  /** The time at which it is due, in ms. */
  readonly due: number;
}

function toMicroseconds(milliseconds: number): number {
  return Math.round(milliseconds * 1000);
}

/** Sends one request. @returns the reason if the response is not 200 and complete */
function send(client: Client, path: string): Promise<string | undefined> {
  const { promise, resolve } = Promise.withResolvers<string | undefined>();
  let status = 0;
  client.dispatch(
    { method: "GET", path },
    {
      onRequestStart() {},
      onResponseStart(_, statusCode) {
        status = statusCode;
      },
      onResponseData() {},
      onResponseEnd: () => resolve(status === 200 ? undefined : `${status}`),
      onResponseError: (_, error) => resolve(error.message),
    },
  );
  return promise;
}

async function pace(settings: PaceSettings): Promise<Pace> {
  const { port, path, connections, rate, lead, seconds, patience } = settings;
  const measured = Math.floor(rate * seconds);
  const before = Math.floor(rate * lead);
  const latencies: number[] = Array.from({ length: measured }, () => -1);
  const lateness: number[] = Array.from({ length: measured }, () => 0);
  let failure = "";

  const origin = `http://127.0.0.1:${port}`;
  const clients = Array.from({ length: connections }, () => new Client(origin));
  // A first request on each client opens its connection.
  for (const reason of await Promise.all(clients.map((client) => send(client, path)))) {
    failure = reason ?? failure;
  }
  // The connections without a request, and the requests without a connection. One of the two is empty.
  const idle = clients.map((client) => ({ client, since: 0 }));
  const waiting: Pending[] = [];
  let running = 0;
  const run = async (client: Client, since: number, first: Pending): Promise<void> => {
    running++;
    let next: Pending | undefined = first;
    let idleSince = since;
    while (next !== undefined) {
      const { index, due } = next;
      const late = performance.now() - Math.max(due, idleSince);
      const reason = await send(client, path);
      idleSince = performance.now();
      if (reason !== undefined) failure = reason;
      if (index >= 0) {
        latencies[index] = toMicroseconds(idleSince - due);
        lateness[index] = toMicroseconds(late);
      }
      next = waiting.shift();
    }
    running--;
    idle.push({ client, since: idleSince });
  };

  const meter = new Worker(new URL("meter.ts", import.meta.url));
  const ask = (message: "start" | "stop"): void => meter.postMessage(message, []);
  await once(meter, "message");
  const start = performance.now() + 10;
  for (let i = 0; i < before + measured; i++) {
    const due = start + dueAt(i, rate);
    while (performance.now() < due) await new Promise(setImmediate);
    if (i === before) ask("start");
    const next = { index: i - before, due };
    const free = idle.shift();
    if (free === undefined) waiting.push(next);
    else void run(free.client, free.since, next);
  }
  await sleep(Math.max(0, start + (lead + seconds) * 1000 - performance.now()));
  const measuredHiccups = once(meter, "message") as Promise<[number[]]>;
  ask("stop");

  const until = performance.now() + patience * 1000;
  while (running > 0 && performance.now() < until) await sleep(5);
  const now = performance.now();
  let unanswered = 0;
  for (const [i, latency] of latencies.entries()) {
    if (latency >= 0) continue;
    latencies[i] = toMicroseconds(now - start - dueAt(before + i, rate));
    unanswered++;
  }
  const [hiccups] = await measuredHiccups;
  return { latencies, lateness, hiccups, unanswered, failure };
}

const report = await pace(JSON.parse(process.argv[2] ?? "") as PaceSettings);
process.stdout.write(`${JSON.stringify(report)}\n`, () => process.exit(0));
