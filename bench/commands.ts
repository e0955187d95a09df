/** Builds the commands that start the contestants which do not run on Node. */
import { spawnSync } from "node:child_process";
import { writeFileSync } from "node:fs";
import { basename, join } from "node:path";
import { fileURLToPath } from "node:url";
import { build } from "esbuild";
import { toCapnp } from "../test/helpers/capnp.ts";
import type { Tls } from "./rounds.ts";

/** A program and its arguments. */
export type Command = [program: string, ...args: string[]];

/** The port on which a contestant listens, and the upstream to which it sends. */
export interface Place {
  readonly port: number;
  readonly target: string;
  /** A directory for files that the contestant needs. */
  readonly directory: string;
  /** TLS on either side; undefined for none. */
  readonly tls?: Tls | undefined;
}

const found = new Map<string, boolean>();

export function hasCommand(name: string): boolean {
  let has = found.get(name);
  if (has === undefined) {
    has = spawnSync("sh", ["-c", `command -v ${name}`]).status === 0;
    found.set(name, has);
  }
  return has;
}

const built = new Map<string, string>();

/**
 * Builds a Go program, once per run.
 * @param source its folder
 * @param directory the folder for the binary
 * @returns the path of the binary
 */
export function buildGo(source: string, directory: string): string {
  let binary = built.get(source);
  if (binary === undefined) {
    binary = join(directory, `go-${basename(source)}`);
    const { status, stderr } = spawnSync("go", ["build", "-o", binary, "."], {
      cwd: source,
      encoding: "utf8",
      env: { ...process.env, GOFLAGS: "-mod=mod", GOTOOLCHAIN: "local" },
    });
    if (status !== 0) throw new Error(`go build failed: ${stderr}`);
    built.set(source, binary);
  }
  return binary;
}

/** Returns the command that starts the Go proxy. */
export function goCommand(directory: string): Command {
  return [buildGo(fileURLToPath(new URL("contestants/go", import.meta.url)), directory)];
}

/**
 * Returns the command of nginx with one worker, kept upstream connections, and bodies that are streamed and not
 * buffered in files.
 */
export function nginxCommand({ port, target, directory, tls }: Place): Command {
  const { protocol, host } = new URL(target);
  const config = `
    daemon off;
    worker_processes 1;
    pid ${directory}/nginx.pid;
    error_log stderr error;
    events { worker_connections 16384; }
    http {
      access_log off;
      client_body_temp_path ${directory}/body;
      proxy_temp_path ${directory}/proxy;
      fastcgi_temp_path ${directory}/fastcgi;
      uwsgi_temp_path ${directory}/uwsgi;
      scgi_temp_path ${directory}/scgi;
      keepalive_requests 100000000;
      client_max_body_size 0;
      upstream target {
        server ${host};
        keepalive 256;
        keepalive_requests 100000000;
      }
      server {
        listen 127.0.0.1:${port}${tls?.serves ? " ssl" : ""} backlog=4096;
        ${tls ? tlsDirectives(tls) : ""}
        proxy_http_version 1.1;
        proxy_set_header Connection "";
        proxy_set_header X-Forwarded-For $proxy_add_x_forwarded_for;
        proxy_request_buffering off;
        proxy_buffers 8 64k;
        proxy_max_temp_file_size 0;
        location / { proxy_pass ${protocol}//target; }
        location /events { proxy_buffering off; proxy_pass ${protocol}//target; }
        location /socket {
          proxy_set_header Upgrade $http_upgrade;
          proxy_set_header Connection upgrade;
          proxy_buffer_size 64k;
          proxy_pass ${protocol}//target;
        }
      }
    }`;
  const file = join(directory, `nginx-${port}.conf`);
  writeFileSync(file, config);
  return ["nginx", "-p", directory, "-e", "stderr", "-c", file];
}

function tlsDirectives({ certificate }: Tls): string {
  return `
        ssl_certificate ${certificate};
        ssl_certificate_key ${certificate};
        proxy_ssl_verify on;
        proxy_ssl_trusted_certificate ${certificate};
        proxy_ssl_name localhost;`;
}

/** Bundles a Worker, and writes the configuration of a workerd that serves it. */
export async function workerdCommand(
  binary: string,
  entry: string,
  { port, target, directory }: Place,
): Promise<Command> {
  await build({
    entryPoints: [entry],
    outfile: join(directory, `worker-${port}.js`),
    bundle: true,
    format: "esm",
    target: "es2023",
    conditions: ["workerd"],
  });
  const config = toCapnp({
    module: `worker-${port}.js`,
    sockets: { http: port },
    vars: () => ({ TARGET: target }),
  });
  const file = join(directory, `workerd-${port}.capnp`);
  writeFileSync(file, config);
  return [binary, "serve", file];
}
