import { join } from "node:path";
import { buildGo } from "../../../bench/commands.ts";
import { findPort } from "../../helpers/serve.ts";
import type { Contestant } from "../contestant.ts";
import { CACHE, launch, versionOf } from "./_launch.ts";

/** The ReverseProxy of Go's `net/http/httputil`. The program applies the hardenings. */
export const go: Contestant = {
  name: "go",
  source: "go",
  hardenings: {
    "Transport.DisableCompression":
      "Does not ask the upstream for gzip, which the transport would decode.",
    "ResponseController.EnableFullDuplex":
      "Sends a response while the request body is still arriving.",
    "Rewrite adds Via": "Sends Via.",
    "Rewrite keeps RawQuery": "Sends the query as the client sent it.",
  },
  async start({ upstream, hardening = "" }) {
    const version = versionOf(["go", "version"], "install Go 1.21 or later");
    const port = await findPort();
    const started = await launch([buildGo(join(import.meta.dirname, "go"), CACHE)], port, {
      TARGET: `http://127.0.0.1:${upstream}`,
      HARDENING: hardening,
    });
    return { ...started, version, configuration: "test/compare/contestants/go/main.go" };
  },
};
