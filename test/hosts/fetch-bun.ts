/** Run by Bun itself, with its global `fetch` in place of the proxy's own client. */
import { createProxy } from "#proxy";
import { createFetching } from "./_fetching.ts";
import { createSetup, setups, type SetupName } from "../_setups.ts";

declare const Bun: {
  env: Record<string, string | undefined>;
  serve(options: {
    port: number;
    hostname: string;
    fetch: (request: Request, server: unknown) => Promise<Response>;
  }): { port: number };
  stdin: { stream(): ReadableStream<Uint8Array> };
};

/** Answers where the setup needs what `fetch` cannot do. */
const refuse = async (): Promise<Response> => new Response(null, { status: 500 });

const upstream = Bun.env["UPSTREAM"];
if (!upstream) throw new Error("UPSTREAM is not set");
const ports: Record<string, number> = {};
for (const name of Object.keys(setups) as SetupName[]) {
  const setup = createSetup(name, upstream, Bun.env["PROXY_OPTIONS"]);
  const proxy = createFetching(createProxy, setup) ?? { fetch: refuse };
  const server = Bun.serve({ ...proxy, port: 0, hostname: "127.0.0.1" });
  ports[name] = server.port;
}
console.log(JSON.stringify(ports));

// The parent holds stdin open as long as it lives.
for await (const _ of Bun.stdin.stream());
process.exit();
