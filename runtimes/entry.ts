import { createProxy, type CreateProxyOptions, type Proxy } from "#proxy";
import { preferTarget } from "./authority.ts";

/** What configures the ready-to-run proxy: environment variables, or a Worker's vars. */
interface Vars {
  /** Where to send requests. */
  FETCHWAY_TARGET?: unknown;
  /** Options of `createProxy`, as JSON. */
  FETCHWAY_OPTIONS?: unknown;
}

const onWorkers = globalThis.navigator?.userAgent === "Cloudflare-Workers";

/** @throws TypeError of one line that names the variable and the fix */
function readOptions({
  FETCHWAY_TARGET: target,
  FETCHWAY_OPTIONS: json,
}: Vars): CreateProxyOptions {
  if (typeof target !== "string" || target === "") {
    throw new TypeError(
      "fetchway: FETCHWAY_TARGET is not set; set it to the upstream's URL, such as http://127.0.0.1:4000",
    );
  }
  if (json === undefined || json === "") return { target };
  let options: unknown;
  try {
    options = typeof json === "string" ? JSON.parse(json) : json;
  } catch (error) {
    throw new TypeError(`fetchway: FETCHWAY_OPTIONS is not JSON: ${(error as Error).message}`, {
      cause: error,
    });
  }
  if (typeof options !== "object" || options === null || Array.isArray(options)) {
    throw new TypeError('fetchway: FETCHWAY_OPTIONS must be an object, such as {"timeout":5000}');
  }
  return { ...options, target };
}

interface Process {
  env: Vars;
  exit(code: number): never;
}

/** On servers a wrong configuration ends the start, before anybody connects. */
function createAtStart(): Proxy {
  const process: Process = (globalThis as unknown as { process: Process }).process;
  try {
    return createProxy(readOptions(process.env));
  } catch (error) {
    console.error((error as Error).message);
    process.exit(2);
  }
}

// A Worker has its vars only with a request, and may do no work before it.
let proxy: Proxy | undefined = onWorkers ? undefined : createAtStart();

async function fetch(request: Request, context?: unknown): Promise<Response> {
  try {
    proxy ??= createProxy(readOptions(context as Vars));
  } catch (error) {
    console.error((error as Error).message);
    return new Response("Internal Server Error: proxy_configuration_error\n", {
      status: 500,
      headers: { "proxy-status": "fetchway; error=proxy_configuration_error" },
    });
  }
  preferTarget(request);
  return proxy.fetch(request, context);
}

/** The default export that `deno serve`, `bun run`, Workers and srvx start. */
const server: { fetch: typeof fetch } = { fetch };
export default server;
