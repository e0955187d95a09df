/** Proxies to HTTP/2 upstreams on Node, Bun and Deno, in servers of their own runtime. */
import { createServer } from "node:http";
import { createProxy } from "../runtimes/node.ts";
import type { PoolOptions } from "../src/options/pooloptions.ts";
import type { ProxyOptions } from "../src/options/proxyoptions.ts";
import { type Client, connect } from "./_client.ts";
import { Served } from "./_served.ts";
import { listen } from "./_serve.ts";

export const runtimes = ["node", "bun", "deno"] as const;
export type Http2Runtime = (typeof runtimes)[number];

export interface Front {
  /** Connects a client of HTTP/1.1 to the proxy. */
  connect(): Promise<Client>;
  close(): Promise<void>;
}

/** Starts a proxy whose target is in the query of each request: `/?to=http://…`. */
export async function startFront(
  runtime: Http2Runtime,
  pool: PoolOptions,
  options: ProxyOptions,
): Promise<Front> {
  if (runtime !== "node") {
    const served = new Served(runtime, "?to", pool, options);
    return { connect: () => served.connect(), close: () => served[Symbol.asyncDispose]() };
  }
  const proxy = createProxy({
    ...options,
    pool,
    target: ({ url }) => new URL(url).searchParams.get("to") ?? "",
  });
  const server = createServer(proxy.nodeHandler);
  const port = await listen(server);
  const clients: Client[] = [];
  return {
    async connect() {
      const client = await connect(port);
      clients.push(client);
      return client;
    },
    async close() {
      for (const client of clients) client.leave("FIN");
      server.close();
      proxy.destroy();
      await proxy.close();
    },
  };
}

/** The head of a request for an upstream. */
export function askFor(url: string, method = "GET", ...fields: string[]): string {
  const lines = [
    `${method} /?to=${encodeURIComponent(url)} HTTP/1.1`,
    "Host: proxy.test",
    ...fields,
  ];
  return `${lines.join("\r\n")}\r\n\r\n`;
}
