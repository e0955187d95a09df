import { spawnSync } from "node:child_process";
import { existsSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { say } from "../../../bench/program.ts";
import { findPort } from "../../helpers/serve.ts";
import type { Contestant } from "../contestant.ts";
import { CACHE, effectsOf, type Hardenings, launch, versionOf } from "./_launch.ts";

/** The version of Caddy that is compiled here, because Debian 12 has only 2.6, of 2022. */
const VERSION = "v2.11.9";

/** Options of the servers, and subdirectives of `reverse_proxy`. */
interface Setting {
  readonly servers?: string;
  readonly proxy?: string;
}

const hardenings: Hardenings<Setting> = {
  "header_up -Forwarded": [
    { proxy: "header_up -Forwarded" },
    "Removes a Forwarded field that the client sent.",
  ],
  "compression off": [
    { proxy: "transport http {\n\t\t\tcompression off\n\t\t}" },
    "Does not ask the upstream for gzip, which the transport would decode.",
  ],
  enable_full_duplex: [
    { servers: "enable_full_duplex" },
    "Sends a response while the request body is still arriving.",
  ],
};

function toConfig(port: number, upstream: number, { servers, proxy }: Setting): string {
  return `{
	admin off${servers ? `\n\tservers {\n\t\t${servers}\n\t}` : ""}
}
http://:${port} {
	bind 127.0.0.1
	reverse_proxy 127.0.0.1:${upstream}${proxy ? ` {\n\t\t${proxy}\n\t}` : ""}
}
`;
}

/** Compiles Caddy once, which takes minutes, and returns the path of the binary. */
function buildCaddy(): string {
  const folder = join(CACHE, `caddy-${VERSION}`);
  const binary = join(folder, "caddy");
  if (existsSync(binary)) return binary;
  versionOf(["go", "version"], "install Go, which compiles Caddy");
  say(`Compiling Caddy ${VERSION}`);
  const { status, stderr } = spawnSync(
    "go",
    ["install", `github.com/caddyserver/caddy/v2/cmd/caddy@${VERSION}`],
    { encoding: "utf8", env: { ...process.env, GOBIN: folder, GOFLAGS: "", GOTOOLCHAIN: "local" } },
  );
  if (status !== 0) throw new Error(`Caddy could not be compiled: ${stderr}`);
  return binary;
}

export const caddy: Contestant = {
  name: "caddy",
  source: "go",
  hardenings: effectsOf(hardenings),
  async start({ upstream, folder, hardening = "" }) {
    const binary = buildCaddy();
    const port = await findPort();
    const [setting = {}] = hardenings[hardening] ?? [];
    const configuration = toConfig(port, upstream, setting);
    const file = join(folder, "Caddyfile");
    writeFileSync(file, configuration);
    // Caddy keeps its state in the folder of the run.
    const env = { XDG_CONFIG_HOME: folder, XDG_DATA_HOME: folder };
    const started = await launch([binary, "run", "--config", file], port, env);
    return { ...started, version: VERSION.slice(1), configuration };
  },
};
