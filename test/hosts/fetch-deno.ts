/** Run by Deno itself, with its global `fetch` in place of the proxy's own client. */
import { createProxy, ProxyError } from "#proxy";
import { createFetching } from "./_fetching.ts";
import { createSetup, setups, type SetupName } from "../_setups.ts";

declare const Deno: {
  env: { get(name: string): string | undefined };
  exit(code: number): never;
  serve(
    options: {
      port: number;
      hostname: string;
      onListen(): void;
      onError(error: unknown): Response;
    },
    handler: (request: Request, info: unknown) => Promise<Response>,
  ): { addr: { port: number } };
  stdin: { readable: ReadableStream<Uint8Array> };
};

/** Answers where the setup needs what `fetch` cannot do. */
const refuse = async (): Promise<Response> => new Response(null, { status: 500 });

const upstream = Deno.env.get("UPSTREAM");
if (!upstream) throw new Error("UPSTREAM is not set");
const ports: Record<string, number> = {};
for (const name of Object.keys(setups) as SetupName[]) {
  const setup = createSetup(name, upstream, Deno.env.get("PROXY_OPTIONS"));
  const proxy = createFetching(createProxy, setup) ?? { fetch: refuse };
  const server = Deno.serve(
    {
      port: 0,
      hostname: "127.0.0.1",
      onListen() {},
      // As Deno's own, but for response bodies that break off: those it would print, too.
      onError(error) {
        if (!(error instanceof ProxyError)) console.error(error);
        return new Response(null, { status: 500 });
      },
    },
    proxy.fetch,
  );
  ports[name] = server.addr.port;
}
console.log(JSON.stringify(ports));

// The parent holds stdin open as long as it lives.
for await (const _ of Deno.stdin.readable);
Deno.exit(0);
