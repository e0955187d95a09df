/**
 * Starts a server with a proxy on the runtime that runs this program. The first argument is the proxy's options as JSON; a list
 * as `target` is passed to `balance`. Some paths report the proxy's state, or close the proxy.
 */
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { createProxy, type CreateProxyOptions } from "#fetchway";
import { balance, type BalanceOptions } from "#fetchway/upstreams";

declare const Bun: { serve(options: object): { port: number } } | undefined;
declare const Deno:
  | { serve(options: object, fetch: object): { addr: { port: number } } }
  | undefined;

export type ProgramOptions = Omit<CreateProxyOptions, "target"> & {
  target: string | string[];
  balancing?: BalanceOptions;
};

const { target, balancing, ...rest } = JSON.parse(process.argv[2] as string) as ProgramOptions;
const targetOf = typeof target === "string" ? target : balance(target, balancing);
const proxy = createProxy({ ...rest, target: targetOf });

const own: Record<string, () => Response> = {
  "/held": () => new Response(String(proxy.stats()?.held)),
  "/upstreams": () =>
    new Response(
      proxy
        .stats()
        ?.upstreams?.map(({ state, active }) => `${state} ${active}`)
        .join(),
    ),
  "/close": () => (void proxy.close(), new Response("closing")),
  "/destroy": () => (proxy.destroy(), new Response("destroyed")),
};

async function fetch(request: Request, context: unknown): Promise<Response> {
  return own[new URL(request.url).pathname]?.() ?? proxy.fetch(request, context);
}

const options = { port: 0, hostname: "127.0.0.1", fetch, onListen() {} };
if (typeof Bun !== "undefined") console.log(`port=${Bun.serve(options).port}`);
else if (typeof Deno !== "undefined") console.log(`port=${Deno.serve(options, fetch).addr.port}`);
else {
  const server = createServer((req, res) => {
    const answer = own[req.url as string]?.();
    if (answer === undefined) proxy.nodeHandler(req, res);
    else void answer.text().then((text) => res.end(text));
  });
  server.listen(0, "127.0.0.1", () =>
    console.log(`port=${(server.address() as AddressInfo).port}`),
  );
}
