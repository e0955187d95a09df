/** A proxy server on Bun or Deno that also has routes about the proxy's upstream connections. */
import { type Client, connect } from "../../helpers/client.ts";
import { type Program, startProgram } from "../../helpers/program.ts";
import { pause, within } from "../../helpers/wait.ts";
import { request } from "../../helpers/wire.ts";
import type { PoolOptions } from "../../../src/options/pooloptions.ts";
import type { ProxyOptions } from "../../../src/options/proxyoptions.ts";
import type { CreateProxyOptions } from "../../../src/proxy.ts";
import type { PoolStats } from "../../../src/transport/stats.ts";

export type RuntimeName = "bun" | "deno";

const runtimes: Record<RuntimeName, { args: string[]; serve: string; ffi: string }> = {
  bun: {
    args: ["-e"],
    serve: "Bun.serve({ port: 0, hostname, fetch, maxRequestBodySize: 1e9 })",
    ffi: `(await import("bun:ffi")).dlopen("libc.so.6", {
      getsockopt: { args: ["int", "int", "int", "ptr", "ptr"], returns: "int" },
      getpeername: { args: ["int", "ptr", "ptr"], returns: "int" },
    })`,
  },
  deno: {
    args: ["eval", "--unstable-no-legacy-abort"],
    serve: "Deno.serve({ port: 0, hostname, onListen() {} }, fetch).addr",
    ffi: `Deno.dlopen("libc.so.6", {
      getsockopt: { parameters: ["i32", "i32", "i32", "buffer", "buffer"], result: "i32" },
      getpeername: { parameters: ["i32", "buffer", "buffer"], result: "i32" },
    })`,
  },
};

/**
 * Returns code that asks the operating system for the options of this process's sockets to a port, because no runtime
 * shows them.
 */
const socketOptions = (ffi: string): string => `
  const { symbols } = ${ffi};
  const { readdirSync } = await import("node:fs");
  const ask = (fd, level, name) => {
    const value = new Int32Array(1);
    return symbols.getsockopt(fd, level, name, value, new Uint32Array([4])) === 0 && value[0];
  };
  const sockets = [];
  for (const fd of readdirSync("/proc/self/fd").map(Number)) {
    const peer = new Uint8Array(128);
    if (symbols.getpeername(fd, peer, new Uint32Array([128])) !== 0) continue;
    if (peer[2] * 256 + peer[3] !== PORT) continue;
    // SOL_SOCKET, SO_KEEPALIVE; IPPROTO_TCP, TCP_NODELAY and TCP_KEEPIDLE.
    sockets.push({ noDelay: ask(fd, 6, 1), keepAlive: ask(fd, 1, 9), delay: ask(fd, 6, 4) });
  }
  return Response.json(sockets);
`;

export interface SocketOptions {
  noDelay: number;
  keepAlive: number;
  /** The delay of the first keep-alive probe in seconds. */
  delay: number;
}

export class Served implements AsyncDisposable {
  readonly #program: Program;
  readonly #clients: Client[] = [];

  /**
   * @param target `"?to"` means a function that returns the query parameter `to`
   * @param options options that JSON can express
   * @param further the paths of further proxies in the same server, each with the options that differ
   * @param prelude code that runs before the proxy is created
   */
  constructor(
    runtime: RuntimeName,
    target: CreateProxyOptions["target"],
    pool: PoolOptions = {},
    options: Omit<CreateProxyOptions, "target" | "pool"> = {},
    further: Record<string, ProxyOptions> = {},
    prelude = "",
  ) {
    const entry = new URL(`../../../runtimes/${runtime}.ts`, import.meta.url).href;
    const { args, serve, ffi } = runtimes[runtime];
    const code = `
      import { createProxy } from ${JSON.stringify(entry)};
      ${prelude}
      const options = ${JSON.stringify({ target, pool, ...options })};
      if (options.target === "?to") {
        options.target = (request) => new URL(request.url).searchParams.get("to");
      }
      const proxy = createProxy(options);
      const hostname = "127.0.0.1";
      const own = {
        "/stats": () => Response.json(proxy.stats()),
        "/close": ({ url }) => {
          const closed = proxy.close(Number(new URL(url).search.slice(1)));
          console.log("closing");
          return closed.then(() => new Response("closed"));
        },
        "/destroy": () => (proxy.destroy(), new Response("destroyed")),
        // The body of this request is longer than its Content-Length.
        "/lying": () => {
          const body = new ReadableStream({
            start(controller) {
              controller.enqueue(new TextEncoder().encode("abcdefghij"));
              setTimeout(() => controller.close(), 100);
            },
          });
          const headers = { "content-length": "3" };
          return proxy.fetch(new Request("http://proxy.test/", { method: "POST", headers, body, duplex: "half" }));
        },
        "/sockets": async ({ url }) => {
          const PORT = Number(new URL(url).search.slice(1));
          ${socketOptions(ffi)}
        },
      };
      for (const [path, others] of Object.entries(${JSON.stringify(further)})) {
        const other = createProxy({ ...options, ...others });
        own[path] = (request, context) => other.fetch(request, context);
      }
      const fetch = (request, context) =>
        (own[new URL(request.url).pathname] ?? proxy.fetch)(request, context);
      console.log("port=" + ${serve}.port);
    `;
    this.#program = startProgram(runtime, [...args, code]);
  }

  async connect(): Promise<Client> {
    const client = await connect(Number((await this.#program.printed(/port=(\d+)/))[1]));
    this.#clients.push(client);
    return client;
  }

  async send(path: string, method = "GET", body?: string): Promise<Client> {
    const client = await this.connect();
    client.send(request(method, path, [], body));
    return client;
  }

  async ask(path: string): Promise<string> {
    const { status, text } = await (await this.send(path)).read();
    return `${status} ${text}`;
  }

  async stats(): Promise<PoolStats> {
    return JSON.parse((await this.ask("/stats")).slice("200 ".length)) as PoolStats;
  }

  /** Options of the sockets that are connected to a port. */
  async sockets(port: number): Promise<SocketOptions[]> {
    return JSON.parse((await this.ask(`/sockets?${port}`)).slice("200 ".length)) as SocketOptions[];
  }

  /** Waits until exactly `count` requests are queued for a connection to this origin. */
  async waiting(origin: string, count: number): Promise<void> {
    const poll = async (): Promise<void> => {
      while ((await this.stats()).origins[origin]?.waiting !== count) await pause(5);
    };
    await within(poll(), `${count} waiting requests`);
  }

  /** Waits until a request for `/close` has begun to close the proxy. */
  async closing(): Promise<void> {
    await this.#program.printed(/^closing$/m);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    for (const client of this.#clients) client.leave("FIN");
    await this.#program[Symbol.asyncDispose]();
  }
}
