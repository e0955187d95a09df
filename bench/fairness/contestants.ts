/** The command, HAProxy and nginx with their defaults, where those would not refuse the clients of this comparison. */
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import process from "node:process";
import { fileURLToPath } from "node:url";
import type { Certificate } from "../../test/helpers/certificate.ts";
import type { Command } from "../commands.ts";

/** Where a contestant listens, and what it may use. */
export interface Place {
  readonly port: number;
  /** The port of the upstream. */
  readonly upstream: number;
  /** A folder for its files. */
  readonly directory: string;
  /** The certificate, if it serves HTTPS with HTTP/2. */
  readonly certificate: Certificate | undefined;
  /** The number of connections to the upstream; undefined for the contestant's default. */
  readonly maxSockets: number | undefined;
  readonly descriptors: number;
}

export interface Contestant {
  readonly name: string;
  /** The program, which has to be on the path; undefined for the command itself. */
  readonly program: string | undefined;
  command(place: Place): Command;
}

const main = fileURLToPath(new URL("../../command/main.ts", import.meta.url));

function writeCertificate({ directory, certificate }: Place): { cert: string; key: string } {
  const cert = join(directory, "cert.pem");
  const key = join(directory, "key.pem");
  writeFileSync(cert, `${certificate?.cert}\n${certificate?.key}\n`);
  writeFileSync(key, certificate?.key ?? "");
  return { cert, key };
}

function ownCommand(place: Place): Command {
  const { port, upstream, maxSockets, certificate } = place;
  const { cert, key } = writeCertificate(place);
  return [
    process.execPath,
    main,
    `${upstream}`,
    "--port",
    `${port}`,
    "--log",
    "off",
    ...(certificate === undefined ? [] : ["--cert", cert, "--key", key]),
    ...(maxSockets === undefined ? [] : ["--max-sockets", `${maxSockets}`]),
  ];
}

function haproxyCommand(place: Place): Command {
  const { port, upstream, maxSockets, certificate, directory } = place;
  const { cert } = writeCertificate(place);
  const secure = certificate === undefined ? "" : ` ssl crt ${cert} alpn h2,http/1.1`;
  const file = join(directory, "haproxy.cfg");
  const lines = [
    "defaults",
    " mode http",
    " timeout connect 5s",
    " timeout client 60s",
    " timeout server 60s",
    "frontend clients",
    ` bind 127.0.0.1:${port}${secure}`,
    " default_backend upstream",
    "backend upstream",
    ` server one 127.0.0.1:${upstream}${maxSockets === undefined ? "" : ` maxconn ${maxSockets}`}`,
  ];
  writeFileSync(file, `${lines.join("\n")}\n`);
  return ["haproxy", "-db", "-f", file];
}

function nginxCommand(place: Place): Command {
  const { port, upstream, maxSockets, certificate, directory, descriptors } = place;
  const { cert, key } = writeCertificate(place);
  const temporary = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"].map(
    (name) => `${name}_temp_path ${directory}/${name};`,
  );
  const secure = certificate === undefined ? "" : " ssl http2";
  const file = join(directory, "nginx.conf");
  const user = process.getuid?.() === 0 ? "user root;" : "";
  const most = maxSockets === undefined ? "" : ` max_conns=${maxSockets}`;
  writeFileSync(
    file,
    `daemon off; pid ${directory}/nginx.pid; error_log ${directory}/nginx.log; ${user}
events { worker_connections ${descriptors}; }
http {
  access_log off; ${temporary.join(" ")}
  ${certificate === undefined ? "" : `ssl_certificate ${cert}; ssl_certificate_key ${key};`}
  upstream one { server 127.0.0.1:${upstream}${most}; }
  server { listen 127.0.0.1:${port}${secure}; location / { proxy_http_version 1.1; proxy_pass http://one; } }
}
`,
  );
  return ["nginx", "-c", file];
}

export const CONTESTANTS: readonly Contestant[] = [
  { name: "fetchway", program: undefined, command: ownCommand },
  { name: "haproxy", program: "haproxy", command: haproxyCommand },
  { name: "nginx", program: "nginx", command: nginxCommand },
];
