import { goCommand } from "../../../bench/commands.ts";
import { findPort } from "../../helpers/serve.ts";
import type { Contestant } from "../contestant.ts";
import { CACHE, effectsOf, type Hardenings, launch, versionOf } from "./_launch.ts";

/** A field of Go's Transport, ReverseProxy or Server, and the flag that sets it. */
const hardenings: Hardenings<string> = {
  "Transport.DisableCompression: true": [
    "-disable-compression",
    "Does not ask the upstream for gzip, which the transport would decode.",
  ],
  "ReverseProxy.FlushInterval: -1": [
    "-flush-interval=-1ns",
    "Sends a response body while it arrives, also if its length is known.",
  ],
  "Server.ReadHeaderTimeout: 5s": [
    "-read-header-timeout=5s",
    "Limits the time in which a client sends the header section.",
  ],
};

/** The ReverseProxy of Go's `net/http/httputil`, as the example of its documentation. */
export const go: Contestant = {
  name: "go",
  source: "go",
  hardenings: effectsOf(hardenings),
  async start({ upstream, hardening = "" }) {
    const version = versionOf(["go", "version"], "install Go 1.21 or later");
    const [flag] = hardenings[hardening] ?? [];
    const port = await findPort();
    const started = await launch(goCommand(CACHE, ...(flag ? [flag] : [])), port, {
      TARGET: `http://127.0.0.1:${upstream}`,
    });
    return { ...started, version, configuration: "bench/contestants/go/main.go" };
  },
};
