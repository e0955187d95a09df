import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { findPort } from "../../helpers/serve.ts";
import type { Contestant } from "../contestant.ts";
import { debianVersionOf, launch } from "./_launch.ts";

/** Each label is a line of the section `listen`. */
const hardenings = {
  "http-request del-header X-Forwarded-For":
    "Removes the addresses that the client sent in X-Forwarded-For.",
  "http-request del-header Forwarded": "Removes a Forwarded field that the client sent.",
  "http-request del-header Upgrade unless { req.hdr(Upgrade) -i websocket }":
    "Upgrades to no protocol but WebSocket, such as h2c.",
  "option http-restrict-req-hdr-names delete":
    "Removes request fields whose names have other characters than letters, digits and hyphens.",
  "option abortonclose": "Cancels the upstream request when the client closes the connection.",
  "timeout http-request 5s": "Limits the time in which a client sends the header section.",
};

/** The timeouts are those of Debian's haproxy.cfg. */
function toConfig(port: number, upstream: number, hardening?: string): string {
  return `defaults
  mode http
  timeout connect 5s
  timeout client 50s
  timeout server 50s
listen proxy
  bind 127.0.0.1:${port}
  option forwardfor
${hardening ? `  ${hardening}\n` : ""}  server upstream 127.0.0.1:${upstream}
`;
}

export const haproxy: Contestant = {
  name: "haproxy",
  source: "apt",
  hardenings,
  async start({ upstream, folder, hardening }) {
    const version = debianVersionOf("haproxy", "-v");
    const port = await findPort();
    const configuration = toConfig(port, upstream, hardening);
    const file = join(folder, "haproxy.cfg");
    writeFileSync(file, configuration);
    const started = await launch(["haproxy", "-db", "-f", file], port);
    return { ...started, version, configuration };
  },
};
