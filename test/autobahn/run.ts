/**
 * Runs the Autobahn fuzzing client, a conformance test of WebSockets, directly against an echo server and through each
 * host, and compares the results. It fails for a difference that is not named here.
 *
 *     npm run test:autobahn [-- --hosts node,bun] [--cases 1.*,2.*]
 *
 * It needs a Python 2.7 (`PYTHON27`, or `python2.7` in the PATH), because the client is written for it; the client is
 * installed into node_modules/.cache on the first run.
 */
import { spawn, spawnSync } from "node:child_process";
import { once } from "node:events";
import { existsSync, mkdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import type { AddressInfo } from "node:net";
import { join } from "node:path";
import { parseArgs } from "node:util";
import { WebSocketServer } from "ws";
import { type HostName, startHost } from "../_host.ts";

const HOSTS: readonly HostName[] = ["node", "srvx", "h3", "hono", "bun", "deno", "workerd"];
/** All but 8 and 11, which do not exist: 9 has large messages, 12 and 13 compressed ones. */
const CASES = ["1.*", "2.*", "3.*", "4.*", "5.*", "6.*", "7.*", "9.*", "10.*", "12.*", "13.*"];

const EARLY =
  "a client that breaks the protocol is closed before the upstream has answered its earlier messages";
const EARLY_CASES = [
  "3.2",
  "3.3",
  "3.4",
  "4.1.3",
  "4.1.4",
  "4.1.5",
  "4.2.3",
  "4.2.4",
  "4.2.5",
  "5.15",
];
const early = Object.fromEntries(EARLY_CASES.map((id) => [id, EARLY]));
const FAIL_FAST = "text that is not UTF-8 is refused before its message is complete";

/** The results that may differ from the direct ones, each with its reason. Those of `EARLY` depend on timing. */
const NAMED: Partial<Record<HostName, Record<string, string>>> = {
  bun: early,
  deno: {
    ...early,
    "6.4.1": FAIL_FAST,
    "6.4.2": FAIL_FAST,
    "7.3.6": "a close frame that is too long is answered without a close frame",
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
  // The package lacks this file, without which Python 2 does not find what is in the folder.
  writeFileSync(join(site, "zope/__init__.py"), "");
}

/** Runs the fuzzing client against one server; resolves to the result of each case. */
async function fuzz(agent: string, url: string): Promise<Results> {
  const spec = join(cache, `${agent}.json`);
  const outdir = join(reports, agent);
  rmSync(outdir, { recursive: true, force: true });
  mkdirSync(outdir, { recursive: true });
  const servers = [{ agent, url, options: { version: 18 } }];
  const rest = { "exclude-cases": [], "exclude-agent-cases": {} };
  const cases = values.cases.split(",");
  writeFileSync(spec, JSON.stringify({ outdir, servers, cases, ...rest }));
  const client = spawn(
    python,
    ["-m", "autobahntestsuite.wstest", "-m", "fuzzingclient", "-s", spec],
    { env: { ...process.env, PYTHONPATH: site }, stdio: ["ignore", "ignore", "inherit"] },
  );
  const [code] = (await once(client, "exit")) as [number];
  if (code !== 0) throw new Error(`the fuzzing client ended with ${code}`);
  const index = JSON.parse(readFileSync(join(outdir, "index.json"), "utf8")) as Record<
    string,
    Results
  >;
  return index[agent] ?? {};
}

/** An echo server with compression, whose messages may be as large as the largest of the cases. */
async function startEcho(): Promise<{ port: number; stop(): void }> {
  const server = new WebSocketServer({
    port: 0,
    host: "127.0.0.1",
    maxPayload: 2 ** 27,
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

function summarize(results: Results): string {
  const counts: Record<string, number> = {};
  for (const { behavior } of Object.values(results)) {
    counts[behavior] = (counts[behavior] ?? 0) + 1;
  }
  return Object.entries(counts)
    .map(([behavior, count]) => `${count} ${behavior}`)
    .join(", ");
}

install();
const echo = await startEcho();
const direct = await fuzz("direct", `ws://127.0.0.1:${echo.port}`);
console.log(`direct: ${summarize(direct)}`);
let differences = 0;
for (const name of values.hosts.split(",").filter(Boolean) as HostName[]) {
  const host = await startHost(name, `http://127.0.0.1:${echo.port}`);
  try {
    const results = await fuzz(name, `ws://127.0.0.1:${host.port("default")}`);
    console.log(`${name}: ${summarize(results)}`);
    for (const [id, { behavior, behaviorClose }] of Object.entries(results)) {
      const expected = direct[id];
      if (behavior === expected?.behavior && behaviorClose === expected.behaviorClose) continue;
      const reason = behavior === "FAILED" ? undefined : NAMED[name]?.[id];
      if (reason === undefined) differences++;
      console.log(
        `  ${id}: ${behavior}, close ${behaviorClose}; directly ${expected?.behavior}, close ${expected?.behaviorClose}` +
          (reason === undefined ? "" : ` (${reason})`),
      );
    }
  } finally {
    await host.stop();
  }
}
echo.stop();
console.log(`${differences} results differ from the direct ones without a named reason`);
process.exitCode = differences === 0 ? 0 : 1;
