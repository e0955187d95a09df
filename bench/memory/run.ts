/** `npm run bench:memory`: measures the memory that large bodies, idle streams and a million requests take. */
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { parseArgs } from "node:util";
import { toStamp } from "../code.ts";
import { type Command, workerdCommand } from "../commands.ts";
import { runLoad } from "../load.ts";
import { freePort, pin, Program, sleep } from "../program.ts";
import { describeMachine, writeBetween } from "../report.ts";
import { median } from "../statistics.ts";
import { usageOf } from "../usage.ts";
import type { Workload } from "../workloads.ts";
import { download, openStreams, upload } from "./clients.ts";

const HOSTS = ["node", "srvx", "h3", "hono", "bun", "deno", "workerd"];
const MIB = 1024 ** 2;

const { values } = parseArgs({
  options: {
    only: { type: "string", default: HOSTS.join(",") },
    bytes: { type: "string", default: `${1024 * MIB}` },
    streams: { type: "string", default: "5000" },
    requests: { type: "string", default: "1000000" },
    node: { type: "string", default: "" },
    help: { type: "boolean", default: false },
  },
});

const help = `Usage: npm run bench:memory -- [flags]

  --only <hosts>      some of ${HOSTS.join(", ")}
  --bytes <n>         size of a body, 1 GiB by default
  --streams <n>       idle event streams, 5000 by default
  --requests <n>      number of requests, a million by default; 0 skips this measurement
  --node <flags>      flags for the hosts on Node, such as --max-semi-space-size=4`;

/** The growth of a host's resident memory in bytes. */
interface Growth {
  host: string;
  down: number;
  up: number;
  /** For one idle stream through the proxy (`stream`), and for one that the server itself creates (`own`). */
  stream: number;
  own: number;
  /** For a number of requests, after the same number for warm-up. */
  requests: number;
}

const fileOf = (name: string): string => fileURLToPath(new URL(name, import.meta.url));
const binOf = (name: string): string => fileOf(`../../node_modules/.bin/${name}`);

async function commandOf(
  host: string,
  place: { port: number; target: string; directory: string },
): Promise<Command> {
  if (host === "bun") return [binOf("bun"), fileOf("hosts/bun.ts")];
  if (host === "deno") {
    return [binOf("deno"), "run", "--allow-net", "--allow-env", fileOf("hosts/deno.ts")];
  }
  if (host === "workerd")
    return workerdCommand(binOf("workerd"), fileOf("hosts/workerd.ts"), place);
  const flags = values.node.split(" ").filter((flag) => flag !== "");
  return [process.execPath, ...flags, fileOf("hosts/node.ts"), host];
}

/** Returns the highest growth of resident memory while `work` runs. */
async function growth(pid: number, work: () => Promise<void>): Promise<number> {
  const before = usageOf(pid).rss;
  let highest = before;
  const sample = (): void => void (highest = Math.max(highest, usageOf(pid).rss));
  const sampling = setInterval(sample, 50);
  try {
    await work();
    sample();
  } finally {
    clearInterval(sampling);
  }
  return highest - before;
}

/** Waits until the resident memory does not change any more, and returns it. */
async function settled(pid: number): Promise<number> {
  let last = 0;
  for (let i = 0; i < 10; i++) {
    await sleep(300);
    const { rss } = usageOf(pid);
    if (Math.abs(rss - last) < MIB / 2) return rss;
    last = rss;
  }
  return last;
}

const counted: Workload = {
  name: "count",
  title: "GET 1 KB",
  method: "GET",
  path: "/count",
  body: undefined,
  answer: Buffer.alloc(1024),
  type: "text/plain",
};

async function streamCost({ pid, port }: Program, path: string, count: number): Promise<number> {
  // The first streams also allocate shared structures, which are not the cost of one stream.
  const first = await openStreams(port, path, Math.ceil(count / 10));
  const before = await settled(pid);
  const rest = await openStreams(port, path, count - first.length);
  const cost = ((await settled(pid)) - before) / rest.length;
  for (const socket of [...first, ...rest]) socket.removeAllListeners("close").destroy();
  await sleep(1000);
  return cost;
}

/** Returns the resident memory while `requests` requests are answered: the median of the last tenth of the samples. */
async function memoryAfter({ pid, port }: Program, requests: number): Promise<number> {
  const seen: number[] = [];
  for (let done = 0; done < requests;) {
    done += (await runLoad(counted, port, 3, 64)).requests;
    seen.push(usageOf(pid).rss);
  }
  return median(seen.slice(-Math.ceil(seen.length / 10)));
}

/**
 * Returns the growth during `requests` requests. The same number is sent before as warm-up, because engines enlarge
 * their young generations at the beginning.
 */
async function requestGrowth(program: Program, requests: number): Promise<number> {
  const before = await memoryAfter(program, requests);
  return (await memoryAfter(program, requests)) - before;
}

async function measure(host: string, target: string, directory: string): Promise<Growth> {
  const [bytes, streams, requests] = [values.bytes, values.streams, values.requests].map(
    Number,
  ) as [number, number, number];
  const start = async (): Promise<Program> => {
    const port = await freePort();
    const command = await commandOf(host, { port, target, directory });
    return Program.start(pin(command, "proxy"), port, { TARGET: target });
  };
  const using = async <T>(work: (program: Program) => Promise<T>): Promise<T> => {
    const program = await start();
    try {
      return await work(program);
    } finally {
      await program.stop();
    }
  };
  const transfer = (move: typeof upload): Promise<number> =>
    using(async ({ pid, port }) => {
      await move(port, bytes / 16);
      return growth(pid, () => move(port, bytes));
    });
  return {
    host,
    down: await transfer(download),
    up: await transfer(upload),
    stream: await using((program) => streamCost(program, "/idle", streams)),
    own: await using((program) => streamCost(program, "/own", streams)),
    requests: requests > 0 ? await using((program) => requestGrowth(program, requests)) : 0,
  };
}

// Adding 0 turns `-0` into `0`.
const mib = (bytes: number): string => `${Math.round(bytes / MIB) + 0}`;
const kib = (bytes: number): string => (bytes / 1024).toFixed(1);

function toMarkdown(results: readonly Growth[]): string {
  const rows = results.map(
    ({ host, down, up, stream, own, requests }) =>
      `| ${host} | ${mib(down)} | ${mib(up)} | ${kib(stream)} | ${kib(own)} | ${kib(stream - own)} | ${mib(requests)} |`,
  );
  const { versions, date, code } = describeMachine();
  return [
    `Node ${versions["node"]}, Bun ${versions["bun"]}, Deno ${versions["deno"]}, workerd ${versions["workerd"]}, ${date}, ${toStamp(code)}.${values.node && ` Node with ${values.node}.`} Growth of resident memory.`,
    "",
    `| | ${mib(Number(values.bytes))} MiB down, MiB | up, MiB | idle stream, KiB | the server's own, KiB | above it, KiB | ${values.requests} requests, MiB |`,
    "|---|--:|--:|--:|--:|--:|--:|",
    ...rows,
  ].join("\n");
}

if (values.help) console.log(help);
else {
  const directory = mkdtempSync(join(tmpdir(), "fetchway-bench-"));
  process.on("exit", () => rmSync(directory, { recursive: true, force: true }));
  const port = await freePort();
  const upstream = await Program.start(
    pin([process.execPath, fileOf("target.ts")], "others"),
    port,
  );
  const results: Growth[] = [];
  for (const host of values.only.split(",")) {
    if (!HOSTS.includes(host))
      throw new TypeError(`--only: there is no host ${host}; use ${HOSTS.join(", ")}`);
    const result = await measure(host, `http://127.0.0.1:${port}`, directory);
    process.stderr.write(`${JSON.stringify(result)}\n`);
    results.push(result);
  }
  await upstream.stop();
  console.log(toMarkdown(results));
  if (process.argv.length === 2) {
    writeFileSync(fileOf("../memory.json"), `${JSON.stringify(results, undefined, 2)}\n`);
    writeBetween("memory", toMarkdown(results));
  }
}
