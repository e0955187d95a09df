import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { findPort } from "../../helpers/serve.ts";
import type { Contestant } from "../contestant.ts";
import { debianVersionOf, launch } from "./_launch.ts";

/**
 * The directives of Debian's proxy_params, then those of nginx's page about WebSockets. Connections to the upstream stay
 * open, as in nginx's page about `keepalive`.
 */
const DIRECTIVES = [
  'map $http_upgrade $connection_upgrade { default upgrade; "" ""; }',
  "proxy_set_header Host $host",
  "proxy_set_header X-Real-IP $remote_addr",
  "proxy_set_header X-Forwarded-For $proxy_add_x_forwarded_for",
  "proxy_set_header X-Forwarded-Proto $scheme",
  "proxy_http_version 1.1",
  "proxy_set_header Upgrade $http_upgrade",
  "proxy_set_header Connection $connection_upgrade",
];

/** Each label is a directive, which replaces one that sets the same. */
const hardenings = {
  "proxy_set_header X-Forwarded-For $remote_addr":
    "Replaces the addresses that the client sent in X-Forwarded-For.",
  'proxy_set_header Forwarded ""': "Removes a Forwarded field that the client sent.",
  'map $http_upgrade $connection_upgrade { default ""; websocket upgrade; }':
    "Upgrades to no protocol but WebSocket, such as h2c.",
  "proxy_request_buffering off":
    "Sends a request body while it arrives, instead of storing it first.",
  "proxy_buffering off": "Sends a response body while it arrives.",
  "client_max_body_size 0": "Accepts request bodies of more than 1 MB.",
};

/** Returns what a directive sets: its name, or the name of the header field. */
function settingOf(directive: string): string | undefined {
  return /^(?:proxy_set_header )?\S+/.exec(directive)?.[0];
}

function toConfig(port: number, upstream: number, hardening?: string): string {
  const kept = DIRECTIVES.filter((each) => !hardening || settingOf(each) !== settingOf(hardening));
  const directives = [...kept, ...(hardening ? [hardening] : [])];
  const maps = directives.filter((each) => each.startsWith("map"));
  const rest = directives.filter((each) => !maps.includes(each));
  // The default folders of these files belong to the system's nginx. As root, nginx would write to its own as `nobody`.
  const folders = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"];
  return `daemon off;
pid nginx.pid;
error_log stderr;
${process.getuid?.() === 0 ? "user root;\n" : ""}events {}
http {
  access_log off;
  ${folders.map((name) => `${name}_temp_path ${name};`).join(" ")}
  ${maps.join("\n  ")}
  upstream backend { server 127.0.0.1:${upstream}; keepalive 32; }
  server {
    listen 127.0.0.1:${port};
    ${rest.map((each) => `${each};`).join("\n    ")}
    location / { proxy_pass http://backend; }
  }
}
`;
}

export const nginx: Contestant = {
  name: "nginx",
  source: "apt",
  hardenings,
  async start({ upstream, folder, hardening }) {
    const version = debianVersionOf("nginx", "-v");
    const port = await findPort();
    const configuration = toConfig(port, upstream, hardening);
    const file = join(folder, "nginx.conf");
    writeFileSync(file, configuration);
    const started = await launch(["nginx", "-p", folder, "-e", "stderr", "-c", file], port);
    return { ...started, version, configuration };
  },
};
