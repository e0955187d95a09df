/** Listens once per setup, then prints the ports as one line of JSON. Run by Bun and Deno too: nothing of Node's here. */
import { createProxy, proxyFetch } from "#proxy";
import { createSetup, setups, type Setup, type SetupName } from "../_setups.ts";

/** `proxyFetch`, or a proxy of its own where a run has options that only `createProxy` takes. */
export function bindFetch({ target, options }: Setup): (request: Request) => Promise<Response> {
  if (process.env["PROXY_OPTIONS"]) return createProxy({ target, ...options }).fetch;
  return (request) => proxyFetch(request, target, options);
}

/** Starts a server for each setup, and ends this process with its parent. */
export async function announce(
  listen: (setup: Setup) => number | Promise<number>,
  getEnv: (name: string) => string | undefined = (name) => process.env[name],
  exitWithParent: () => unknown = exitOnEnd,
): Promise<void> {
  const upstream = getEnv("UPSTREAM");
  if (!upstream) throw new Error("UPSTREAM is not set");
  const ports: Record<string, number> = {};
  for (const name of Object.keys(setups) as SetupName[]) {
    ports[name] = await listen(createSetup(name, upstream, getEnv("PROXY_OPTIONS")));
  }
  console.log(JSON.stringify(ports));
  await exitWithParent();
}

/** On Node: the parent holds stdin open as long as it lives. */
function exitOnEnd(): void {
  process.stdin.resume().on("end", () => process.exit());
}

/** For servers that are told to be silent: prints an exception, and answers it with 500. */
export function reportError(error: unknown): Response {
  console.error(error);
  return new Response(null, { status: 500 });
}
