import { spawnSync } from "node:child_process";
import { existsSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { findPort } from "../../helpers/serve.ts";
import type { Contestant } from "../contestant.ts";
import { CACHE, effectsOf, type Hardenings, launch, versionOf } from "./_launch.ts";

/** Debian 12 has only 2.6, of 2022. */
const VERSION = "v2.11.9";

/** Subdirectives of `reverse_proxy`. */
const hardenings: Hardenings<string> = {
  "header_up -Forwarded": [
    "header_up -Forwarded",
    "Removes a Forwarded field that the client sent.",
  ],
  "flush_interval -1": ["flush_interval -1", "Sends a response body while it arrives."],
  "transport http, compression off": [
    "transport http {\n\t\t\tcompression off\n\t\t}",
    "Does not ask the upstream for gzip, which the transport would decode.",
  ],
};

function toConfig(port: number, upstream: number, hardening = ""): string {
  const [text] = hardenings[hardening] ?? [];
  return `{
	admin off
}
http://:${port} {
	bind 127.0.0.1
	reverse_proxy 127.0.0.1:${upstream}${text ? ` {\n\t\t${text}\n\t}` : ""}
}
`;
}

/** Compiles Caddy once, which takes minutes, and returns the path of the binary. */
function buildCaddy(): string {
  const folder = join(CACHE, `caddy-${VERSION}`);
  const binary = join(folder, "caddy");
  if (existsSync(binary)) return binary;
  versionOf(["go", "version"], "install Go, which compiles Caddy");
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
  async start({ upstream, folder, hardening }) {
    const binary = buildCaddy();
    const port = await findPort();
    const configuration = toConfig(port, upstream, hardening);
    const file = join(folder, "Caddyfile");
    writeFileSync(file, configuration);
    // Caddy keeps its state in the folder of the run.
    const env = { XDG_CONFIG_HOME: folder, XDG_DATA_HOME: folder };
    const started = await launch([binary, "run", "--config", file], port, env);
    return { ...started, version: VERSION.slice(1), configuration };
  },
};
