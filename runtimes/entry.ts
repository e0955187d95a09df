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

/** A default export: `fetch`, and options of the server that starts it. */
interface Server {
  readonly fetch: typeof fetch;
  readonly [option: string]: unknown;
}

/**
 * Options for the server that starts this: deadlines and limits are the proxy's, and never cut a body that moves.
 * Bun answers 413 to more than 128 MiB, Node 408 to a request that takes more than 5 minutes.
 */
function readServerOptions(): object {
  if (proxy === undefined) return {};
  // Read by the `srvx` command. Without the other, Node forgets that a head has to come within a minute.
  if ("nodeHandler" in proxy) return { node: { requestTimeout: 0, headersTimeout: 60_000 } };
  // What a proxy on Bun says as a default export itself; other runtimes have neither.
  const { maxRequestBodySize, error } = proxy as Proxy &
    Partial<Record<"maxRequestBodySize" | "error", unknown>>;
  return maxRequestBodySize === undefined ? {} : { maxRequestBodySize, error };
}

/** The default export that `deno serve`, `bun run`, Workers and srvx start. */
const server: Server = { ...readServerOptions(), fetch };
export default server;
