import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { findPort } from "../../helpers/serve.ts";
import type { Contestant } from "../contestant.ts";
import { debianVersionOf, launch } from "./_launch.ts";

/** Each label is a directive of the block `server`. */
const hardenings = {
  'proxy_set_header Forwarded ""': "Removes a Forwarded field that the client sent.",
  'proxy_set_header Proxy-Connection ""': "Removes Proxy-Connection from requests.",
  "proxy_hide_header Proxy-Connection": "Removes Proxy-Connection from responses.",
  'proxy_set_header Via "1.1 nginx"': "Sends Via.",
  "proxy_pass_header Date": "Keeps the Date of the upstream.",
  "proxy_request_buffering off":
    "Sends a request body while it arrives, instead of storing it first.",
  "proxy_buffering off": "Sends a response body while it arrives.",
};

/**
 * The directives are those of Debian's proxy_params, then those of nginx's page about WebSockets. Connections to the upstream
 * stay open, as in nginx's page about `keepalive`.
 */
function toConfig(port: number, upstream: number, hardening?: string): string {
  // The default folders for temporary files belong to the system's nginx. Without `user root`, the workers of an nginx that
  // runs as root would run as `nobody`, which may not write to the folder of the run.
  const folders = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"];
  return `daemon off;
pid nginx.pid;
error_log stderr;
${process.getuid?.() === 0 ? "user root;\n" : ""}events {}
http {
  access_log off;
  ${folders.map((name) => `${name}_temp_path ${name};`).join(" ")}
  map $http_upgrade $connection_upgrade { default upgrade; "" ""; }
  upstream backend { server 127.0.0.1:${upstream}; keepalive 32; }
  server {
    listen 127.0.0.1:${port};
    proxy_set_header Host $host;
    proxy_set_header X-Real-IP $remote_addr;
    proxy_set_header X-Forwarded-For $proxy_add_x_forwarded_for;
    proxy_set_header X-Forwarded-Proto $scheme;
    proxy_http_version 1.1;
    proxy_set_header Upgrade $http_upgrade;
    proxy_set_header Connection $connection_upgrade;
    ${hardening ? `${hardening};\n    ` : ""}location / { proxy_pass http://backend; }
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
