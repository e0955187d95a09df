/** Fetchway: its command, and a proxy in a Node server. */
import { readFileSync } from "node:fs";
import { Program } from "../../../bench/program.ts";
import { startHost } from "../../hosts/_host.ts";
import { findPort } from "../../helpers/serve.ts";
import type { Contestant } from "../contestant.ts";

const root = new URL("../../../", import.meta.url);
const { version } = JSON.parse(readFileSync(new URL("package.json", root), "utf8")) as {
  version: string;
};

const VIA = "Sends Via, and refuses requests that have already passed this proxy.";

const command: Contestant = {
  name: "fetchway",
  source: "project",
  hardenings: { "--via edge": VIA },
  async start({ upstream, hardening }) {
    const port = await findPort();
    const line = `http://127.0.0.1:${upstream} --port ${port} --log off ${hardening ?? ""}`.trim();
    const main = new URL("command/main.ts", root).pathname;
    const program = await Program.start([process.execPath, main, ...line.split(" ")], port);
    return { port, version, configuration: `fetchway ${line}`, stop: () => program.stop() };
  },
};

const host: Contestant = {
  name: "fetchway-node",
  source: "project",
  hardenings: { 'via: "edge"': VIA },
  async start({ upstream, hardening }) {
    const options = hardening === undefined ? "" : JSON.stringify({ via: "edge" });
    const started = await startHost("node", `http://127.0.0.1:${upstream}`, { options });
    return {
      port: started.port("default"),
      version,
      configuration: "test/hosts/node.ts",
      stop: () => started.stop(),
    };
  },
};

export const fetchway: readonly Contestant[] = [command, host];
