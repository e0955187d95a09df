/** Starts a proxy for tests of HTTP/2 upstreams: on Node, Bun or Deno, in an HTTP/1.1 server of that runtime. */
import { createServer } from "node:http";
import { createProxy } from "../../../../runtimes/node.ts";
import type { PoolOptions } from "../../../../src/options/pooloptions.ts";
import type { ProxyOptions } from "../../../../src/options/proxyoptions.ts";
import { type Client, connect } from "../../../helpers/client.ts";
import { Served } from "../_served.ts";
import { listen } from "../../../helpers/serve.ts";

export const runtimes = ["node", "bun", "deno"] as const;
export type Http2Runtime = (typeof runtimes)[number];

export interface Front {
  /** Connects an HTTP/1.1 client to the proxy. */
  connect(): Promise<Client>;
  close(): Promise<void>;
}

/**
 * Starts a proxy whose target is in the query of each request: `/?to=http://…`.
 * @param further the paths of further proxies in the same server, each with the options that differ
 */
export async function startFront(
  runtime: Http2Runtime,
  pool: PoolOptions,
  options: ProxyOptions = {},
  further: Record<string, ProxyOptions> = {},
): Promise<Front> {
  if (runtime !== "node") {
    const served = new Served(runtime, "?to", pool, options, further);
    return { connect: () => served.connect(), close: () => served[Symbol.asyncDispose]() };
  }
  const target = ({ url }: Request): string => new URL(url).searchParams.get("to") ?? "";
  const proxies = Object.entries({ "/": {}, ...further }).map(
    ([path, others]) => [path, createProxy({ ...options, ...others, pool, target })] as const,
  );
  const byPath = new Map(proxies);
  const server = createServer((req, res) =>
    byPath.get(req.url?.replace(/\?.*/, "") ?? "")?.nodeHandler(req, res),
  );
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
      for (const proxy of byPath.values()) proxy.destroy();
      await Promise.all([...byPath.values()].map((proxy) => proxy.close()));
    },
  };
}

/**
 * The head of a request for an upstream.
 * @param path the path of the proxy that is asked
 */
export function askFor(
  url: string,
  method = "GET",
  fields: readonly string[] = [],
  path = "/",
): string {
  const lines = [
    `${method} ${path}?to=${encodeURIComponent(url)} HTTP/1.1`,
    "Host: proxy.test",
    ...fields,
  ];
  return `${lines.join("\r\n")}\r\n\r\n`;
}
