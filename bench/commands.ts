/** Builds the commands that start the contestants outside of Node, and the command `fetchway`. */
import { spawnSync } from "node:child_process";
import { writeFileSync } from "node:fs";
import { basename, join } from "node:path";
import { fileURLToPath } from "node:url";
import { build } from "esbuild";
import { toCapnp } from "../test/helpers/capnp.ts";

export type Command = [program: string, ...args: string[]];

/** The certificate, and whether the proxy serves TLS. */
export interface Tls {
  /** The file that has the key, and then the self-signed certificate, of proxies and upstreams. */
  readonly certificate: string;
  /** Whether clients connect to the proxy with TLS. */
  readonly serves: boolean;
}

/** The port on which a contestant listens, the upstream to which it sends, and the resources that it may use. */
export interface Place {
  readonly port: number;
  readonly target: string;
  /** All upstreams, for a contestant that chooses one of several. */
  readonly targets?: readonly string[];
  /** A directory for files that the contestant needs. */
  readonly directory: string;
  /** The TLS settings; undefined if neither the proxy nor its upstream uses TLS. */
  readonly tls?: Tls | undefined;
  /** The number of connections to the upstream; undefined for the contestant's default. */
  readonly maxSockets?: number | undefined;
  /** The limit of open files; undefined for the limit of this process. */
  readonly descriptors?: number | undefined;
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

/** The parts in which the configurations of nginx differ. Each text is in nginx's syntax. */
interface NginxConfig {
  /** Directives for the block `server`, including its locations. `http` has the directives for the block `http`. */
  readonly server: string;
  readonly http?: string;
  /** The servers and the directives for the block `upstream target`. */
  readonly upstream: string;
  /** Parameters of `listen`. */
  readonly listen?: string;
  readonly connections?: number;
}

/** Returns the command of nginx with one worker. */
function runNginx(
  { port, directory }: Place,
  { server, http = "", upstream, listen = "", connections = 16_384 }: NginxConfig,
): Command {
  const temporary = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
    .map((name) => `${name}_temp_path ${directory}/nginx-${name};`)
    .join(" ");
  const user = process.getuid?.() === 0 ? "user root;" : "";
  const config = `
    daemon off; worker_processes 1; pid ${directory}/nginx-${port}.pid; error_log stderr error; ${user}
    events { worker_connections ${connections}; }
    http {
      access_log off; keepalive_requests 100000000; ${temporary} ${http}
      upstream target { ${upstream} }
      server {
        listen 127.0.0.1:${port}${listen};
        proxy_http_version 1.1;
        ${server}
      }
    }`;
  const file = join(directory, `nginx-${port}.conf`);
  writeFileSync(file, config);
  return ["nginx", "-p", directory, "-e", "stderr", "-c", file];
}

const KEPT = "keepalive 256; keepalive_requests 100000000;";

/**
 * Returns the command of an nginx that keeps its upstream connections open, and that streams bodies instead of buffering them
 * in files.
 */
export function nginxCommand(place: Place): Command {
  const { target, tls } = place;
  const { protocol, host } = new URL(target);
  const pass = `proxy_pass ${protocol}//target;`;
  return runNginx(place, {
    upstream: `server ${host}; ${KEPT}`,
    listen: `${tls?.serves ? " ssl" : ""} backlog=4096`,
    http: "client_max_body_size 0;",
    server: `
        ${tls ? tlsDirectives(tls) : ""}
        proxy_set_header Connection "";
        proxy_set_header X-Forwarded-For $proxy_add_x_forwarded_for;
        proxy_request_buffering off; proxy_buffers 8 64k; proxy_max_temp_file_size 0;
        location / { ${pass} }
        location /events { proxy_buffering off; ${pass} }`,
  });
}

function tlsDirectives({ certificate }: Tls): string {
  return `
        ssl_certificate ${certificate};
        ssl_certificate_key ${certificate};
        proxy_ssl_verify on;
        proxy_ssl_trusted_certificate ${certificate};
        proxy_ssl_name localhost;`;
}

/** Returns the command of nginx with its defaults for bodies and connections, and with HTTP/2 if it serves TLS. */
export function defaultNginxCommand(place: Place): Command {
  const { target, tls, maxSockets, descriptors } = place;
  const most = maxSockets === undefined ? "" : ` max_conns=${maxSockets}`;
  const { certificate } = tls ?? {};
  return withDescriptors(
    place,
    runNginx(place, {
      upstream: `server ${new URL(target).host}${most};`,
      listen: tls ? " ssl http2" : "",
      server: `
        ${tls ? `ssl_certificate ${certificate}; ssl_certificate_key ${certificate};` : ""}
        location / { proxy_pass http://target; }`,
      ...(descriptors !== undefined && { connections: descriptors }),
    }),
  );
}

/** The time in ms that a balancing proxy waits for a response before it sends the request to another upstream. */
export const ATTEMPT_TIMEOUT = 300;

/**
 * Returns the command of an nginx that chooses the less busy of two random upstreams, and retries a failed request once at
 * another upstream.
 */
export function balancingNginxCommand(place: Place): Command {
  const servers = (place.targets ?? []).map(
    (target) => `server ${new URL(target).host} max_fails=5 fail_timeout=30s;`,
  );
  return runNginx(place, {
    upstream: `random two least_conn; zone target 64k; ${servers.join(" ")} keepalive 32;`,
    server: `
        location / {
          proxy_pass http://target; proxy_set_header Connection "";
          proxy_read_timeout ${ATTEMPT_TIMEOUT}ms; proxy_next_upstream error timeout http_500;
          proxy_next_upstream_tries 2;
        }`,
  });
}

/** Returns the command of HAProxy with HTTP/1.1 or, if it serves TLS, also HTTP/2. */
export function haproxyCommand(place: Place): Command {
  const { port, target, maxSockets, tls, directory } = place;
  const file = join(directory, `haproxy-${port}.cfg`);
  const lines = [
    "defaults",
    " mode http",
    " timeout connect 5s",
    " timeout client 60s",
    " timeout server 60s",
    "frontend clients",
    ` bind 127.0.0.1:${port}${tls ? ` ssl crt ${tls.certificate} alpn h2,http/1.1` : ""}`,
    " default_backend upstream",
    "backend upstream",
    ` server one ${new URL(target).host}${maxSockets === undefined ? "" : ` maxconn ${maxSockets}`}`,
  ];
  writeFileSync(file, `${lines.join("\n")}\n`);
  return withDescriptors(place, ["haproxy", "-db", "-f", file]);
}

export function fetchwayCommand(place: Place): Command {
  const { port, target, maxSockets, tls } = place;
  return withDescriptors(place, [
    process.execPath,
    fileURLToPath(new URL("../command/main.ts", import.meta.url)),
    target,
    "--port",
    `${port}`,
    "--log",
    "off",
    ...(tls ? ["--cert", tls.certificate, "--key", tls.certificate] : []),
    ...(maxSockets === undefined ? [] : ["--max-sockets", `${maxSockets}`]),
  ]);
}

function withDescriptors({ descriptors }: Place, command: Command): Command {
  if (descriptors === undefined) return command;
  return ["sh", "-c", `ulimit -n ${descriptors}; exec "$@"`, "sh", ...command];
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
