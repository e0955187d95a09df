/**
 * Starts a server for each setup, and prints the ports as one line of JSON. It also runs on Bun and Deno, so it imports
 * no modules of Node.
 */
import * as ours from "#fetchway";
import { createSetup, setups, type Setup, type SetupName } from "./_setups.ts";

/**
 * Returns a handler that calls `proxyFetch`, or a created proxy's `fetch` if the run sets options, of which `proxyFetch`
 * accepts only some.
 * @param entry the entry under test; by default, the runtime's own
 */
export function bindFetch(
  { target, options }: Setup,
  { createProxy, proxyFetch }: Pick<typeof ours, "createProxy" | "proxyFetch"> = ours,
): (request: Request) => Promise<Response> {
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

/** Makes a Node process exit when its parent ends: the parent holds this process's stdin open until then. */
function exitOnEnd(): void {
  process.stdin.resume().on("end", () => process.exit());
}

/** Prints an exception and answers with 500, for servers that would not print it themselves. */
export function reportError(error: unknown): Response {
  console.error(error);
  return new Response(null, { status: 500 });
}

/**
 * Drops the message that `@hono/node-server` logs for each failed response body, because any output on stderr counts as a
 * fault.
 */
export function dropBodyFailures(): void {
  const complain = console.error;
  console.error = (...data: unknown[]) => {
    if (!(data[0] instanceof ours.ProxyError)) complain(...data);
  };
}
