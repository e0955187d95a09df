/**
 * Runs the Autobahn fuzzing client, a conformance test of WebSockets, directly against an echo server and through each
 * host, and compares the results. It fails for a difference that `NAMED` does not list, and for an entry of `NAMED` without a
 * difference.
 *
 *     npm run test:autobahn [-- --hosts node,bun] [--cases 1.*,2.*]
 *
 * Groups 12 and 13 take about 15 minutes for each host that passes compression on, all others together less than one.
 * It needs a Python 2.7 (`PYTHON27`, or `python2.7` in the PATH), because the client is written for it; the client is
 * installed into node_modules/.cache on the first run.
 */
import { spawn, spawnSync } from "node:child_process";
import { once } from "node:events";
import { connect, createServer } from "node:http2";
import { existsSync, mkdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import type { AddressInfo } from "node:net";
import { join } from "node:path";
import { parseArgs } from "node:util";
import { WebSocketServer } from "ws";
import { createProxy } from "../../runtimes/node.ts";
import { bridgeTo } from "../helpers/bridge.ts";
import { listen } from "../helpers/serve.ts";
import { type NodeHttpHost, startHost } from "../hosts/_host.ts";
import type { HostName } from "../hosts/_hosts.ts";

/** `http2` is an HTTP/2 server on Node. A bridge converts the client's WebSockets to WebSockets over HTTP/2 (RFC 8441). */
type Name = HostName | NodeHttpHost | "http2";

const HOSTS: readonly Name[] = [
  "node",
  "srvx",
  "h3",
  "hono",
  "nodehttp-bun",
  "nodehttp-deno",
  "http2",
  "workerd",
  "bun",
  "deno",
];
/** All groups but 8 and 11, which do not exist: 9 has large messages, 12 and 13 compressed ones. */
const CASES = ["1.*", "2.*", "3.*", "4.*", "5.*", "6.*", "7.*", "9.*", "10.*", "12.*", "13.*"];

/**
 * The seconds between two parts of a frame in groups 3 and 4. The client's default is 10 µs, about the time in
 * which a proxy forwards a message. With that default, the results of the cases that send octet by octet would
 * depend on the speed of the machine.
 */
const PACE = 0.005;

const EARLY =
  "the server refuses the bad frame of a packet, and closes, before the upstream can answer the message in front of it";
const EARLY_CASES = ["3.2", "4.1.3", "4.1.4", "4.2.3", "4.2.4", "5.15"];
const COMPRESSED = "the relay negotiates no compression";

function nameCases(cases: readonly string[], reason: string): Record<string, string> {
  return Object.fromEntries(cases.map((id) => [id, reason]));
}

const ofRelays = { ...nameCases(EARLY_CASES, EARLY), ...nameCases(["12", "13"], COMPRESSED) };

/** The results that differ through a proxy, each with its reason, by case or group. */
const NAMED: Partial<Record<Name, Record<string, string>>> = {
  bun: ofRelays,
  deno: {
    ...ofRelays,
    ...nameCases(
      ["6.4.1", "6.4.2"],
      "the server refuses text that is not UTF-8 early, which is better",
    ),
    "7.3.6": "the server answers a close frame that is too long without a close frame",
  },
};

const { values } = parseArgs({
  options: {
    hosts: { type: "string", default: HOSTS.join(",") },
    cases: { type: "string", default: CASES.join(",") },
  },
});

const cache = join(import.meta.dirname, "../../node_modules/.cache/autobahn");
const site = join(cache, "site");
const reports = join(cache, "reports");
const python = process.env["PYTHON27"] ?? "python2.7";

/** The result of one case: of its messages, and of its closing handshake. */
interface Result {
  behavior: string;
  behaviorClose: string;
}

type Results = Record<string, Result>;

function run(args: string[], env: Record<string, string> = {}): void {
  const { status, error } = spawnSync(python, args, {
    env: { ...process.env, ...env },
    stdio: ["ignore", "ignore", "inherit"],
  });
  if (error || status !== 0) {
    throw new Error(`${python} ${args.join(" ")} failed: set PYTHON27 to a Python 2.7`, {
      cause: error,
    });
  }
}

function install(): void {
  if (existsSync(site)) return;
  run(["-m", "pip", "install", "--quiet", "--target", site, "autobahntestsuite==25.10.1"]);
  // The package lacks this file, without which Python 2 does not find the modules of the folder.
  writeFileSync(join(site, "zope/__init__.py"), "");
}

/** Runs the fuzzing client against one server; resolves to the result of each case. */
async function fuzz(agent: string, url: string): Promise<Results> {
  const cases = values.cases.split(",");
  const isSlow = (pattern: string): boolean => /^[34]\b/.test(pattern);
  const others = cases.filter((pattern) => !isSlow(pattern));
  return {
    ...(await fuzzAtPace(agent, url, others)),
    ...(await fuzzAtPace(agent, url, cases.filter(isSlow), PACE)),
  };
}

async function fuzzAtPace(
  agent: string,
  url: string,
  cases: string[],
  pace?: number,
): Promise<Results> {
  if (cases.length === 0) return {};
  const spec = join(cache, `${agent}.json`);
  const outdir = join(reports, pace === undefined ? agent : `${agent}-slow`);
  rmSync(outdir, { recursive: true, force: true });
  mkdirSync(outdir, { recursive: true });
  const servers = [{ agent, url, options: { version: 18 } }];
  const rest = { "exclude-cases": [], "exclude-agent-cases": {} };
  writeFileSync(spec, JSON.stringify({ outdir, servers, cases, ...rest }));
  const program = [
    "from autobahn.websocket.protocol import WebSocketProtocol",
    pace === undefined ? "" : `WebSocketProtocol._QUEUED_WRITE_DELAY = ${pace}`,
    "from autobahntestsuite.wstest import run",
    "run()",
  ];
  const client = spawn(python, ["-c", program.join("\n"), "-m", "fuzzingclient", "-s", spec], {
    env: { ...process.env, PYTHONPATH: site },
    stdio: ["ignore", "ignore", "inherit"],
  });
  const [code] = (await once(client, "exit")) as [number];
  if (code !== 0) throw new Error(`the fuzzing client ended with ${code}`);
  const index = JSON.parse(readFileSync(join(outdir, "index.json"), "utf8")) as Record<
    string,
    Results
  >;
  return index[agent] ?? {};
}

/** Starts an echo server with compression, whose limits allow the largest message and the most fragments of the cases. */
async function startEcho(): Promise<{ port: number; stop(): void }> {
  const server = new WebSocketServer({
    port: 0,
    host: "127.0.0.1",
    maxPayload: 2 ** 27,
    maxFragments: 0,
    perMessageDeflate: true,
  });
  server.on("connection", (socket) => {
    socket.on("message", (data, isBinary) => socket.send(data, { binary: isBinary }));
    // The cases violate the protocol on purpose; `ws` closes such a connection itself.
    socket.on("error", () => {});
  });
  await once(server, "listening");
  return { port: (server.address() as AddressInfo).port, stop: () => server.close() };
}

/** Starts the host of this name or, for `http2`, an HTTP/2 server with the proxy behind a bridge. */
async function start(name: Name, target: string): Promise<{ port: number; stop(): unknown }> {
  if (name !== "http2") {
    const host = await startHost(name, target);
    return { port: host.port("default"), stop: () => host.stop() };
  }
  const proxy = createProxy({ target });
  const server = createServer(proxy.nodeHandler);
  proxy.attach(server);
  const session = connect(`http://127.0.0.1:${await listen(server)}`);
  const bridge = bridgeTo(() => session);
  const port = await listen(bridge);
  return {
    port,
    stop() {
      session.destroy();
      for (const each of [server, bridge]) each.close();
      proxy.destroy();
    },
  };
}

function summarize(results: Results): string {
  const counts: Record<string, number> = {};
  for (const { behavior } of Object.values(results)) {
    counts[behavior] = (counts[behavior] ?? 0) + 1;
  }
  return Object.entries(counts)
    .map(([behavior, count]) => `${count} ${behavior}`)
    .join(", ");
}

/** Finds why a result may differ, by its case or by its group. */
function reasonOf(host: Name, id: string): string | undefined {
  return NAMED[host]?.[id] ?? NAMED[host]?.[id.slice(0, id.indexOf("."))];
}

/** Prints the results that differ from the direct ones. @returns the number of unexplained differences and of unused reasons */
function compare(host: Name, results: Results, direct: Results): number {
  let unexpected = 0;
  for (const [id, { behavior, behaviorClose }] of Object.entries(results)) {
    const { behavior: own, behaviorClose: ownClose } = direct[id] as Result;
    const differs = behavior !== own || behaviorClose !== ownClose;
    const reason = behavior === "FAILED" ? undefined : reasonOf(host, id);
    if (differs !== (reason !== undefined)) unexpected++;
    if (!differs && reason === undefined) continue;
    console.log(
      `  ${id}: ${behavior}, close ${behaviorClose}; directly ${own}, close ${ownClose} (${reason ?? "unexpected"})`,
    );
  }
  return unexpected;
}

const unknown = values.hosts.split(",").find((host) => !HOSTS.includes(host as Name));
if (unknown !== undefined) throw new Error(`--hosts ${unknown}: use some of ${HOSTS.join(", ")}`);
install();
const echo = await startEcho();
const direct = await fuzz("direct", `ws://127.0.0.1:${echo.port}`);
console.log(`direct: ${summarize(direct)}`);
let unexpected = 0;
for (const each of values.hosts.split(",") as Name[]) {
  const host = await start(each, `http://127.0.0.1:${echo.port}`);
  try {
    const results = await fuzz(each, `ws://127.0.0.1:${host.port}`);
    console.log(`${each}: ${summarize(results)}`);
    unexpected += compare(each, results, direct);
  } finally {
    await host.stop();
  }
}
echo.stop();
console.log(`${unexpected} results differ without a named reason, or have one and do not differ`);
process.exitCode = unexpected === 0 ? 0 : 1;
