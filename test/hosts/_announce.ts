/** Listens once per setup, then prints the ports as one line of JSON. */
import { createProxy, proxyFetch } from "#proxy";
import { createSetup, setups, type Setup, type SetupName } from "../_setups.ts";

/** `proxyFetch`, or a proxy of its own where a run has options that only `createProxy` takes. */
export function bindFetch({ target, options }: Setup): (request: Request) => Promise<Response> {
  if (process.env["PROXY_OPTIONS"]) return createProxy({ target, ...options }).fetch;
  return (request) => proxyFetch(request, target, options);
}

export async function announce(listen: (setup: Setup) => Promise<number>): Promise<void> {
  const upstream = process.env["UPSTREAM"];
  if (!upstream) throw new Error("UPSTREAM is not set");
  const ports: Record<string, number> = {};
  for (const name of Object.keys(setups) as SetupName[]) {
    ports[name] = await listen(createSetup(name, upstream, process.env["PROXY_OPTIONS"]));
  }
  // The parent holds stdin open as long as it lives.
  process.stdin.resume().on("end", () => process.exit());
  console.log(JSON.stringify(ports));
}

/** For servers that are told to be silent: what they print otherwise of an exception, and their answer to it. */
export function reportError(error: unknown): Response {
  console.error(error);
  return new Response(null, { status: 500 });
}
