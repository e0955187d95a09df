/** Builds the commands that start the contestants which do not run on Node. */
import { spawnSync } from "node:child_process";
import { writeFileSync } from "node:fs";
import { basename, join } from "node:path";
import { fileURLToPath } from "node:url";
import { build } from "esbuild";
import { toCapnp } from "../test/_capnp.ts";

/** A program and its arguments. */
export type Command = [program: string, ...args: string[]];

/** The port on which a contestant listens, and the upstream to which it sends. */
export interface Place {
  readonly port: number;
  readonly target: string;
  /** A directory for files that the contestant needs. */
  readonly directory: string;
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
export function nginxCommand({ port, target, directory }: Place): Command {
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
        server ${new URL(target).host};
        keepalive 256;
        keepalive_requests 100000000;
      }
      server {
        listen 127.0.0.1:${port} backlog=4096;
        proxy_http_version 1.1;
        proxy_set_header Connection "";
        proxy_set_header X-Forwarded-For $proxy_add_x_forwarded_for;
        proxy_request_buffering off;
        proxy_buffers 8 64k;
        proxy_max_temp_file_size 0;
        location / { proxy_pass http://target; }
        location /events { proxy_buffering off; proxy_pass http://target; }
      }
    }`;
  const file = join(directory, `nginx-${port}.conf`);
  writeFileSync(file, config);
  return ["nginx", "-p", directory, "-e", "stderr", "-c", file];
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
