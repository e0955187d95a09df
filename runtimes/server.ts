import { createProxy, type CreateProxyOptions, type ExecutionContext, type Proxy } from "#fetchway";
import { applyAbsoluteForm } from "./absoluteform.ts";

/** The variables that configure this server: environment variables, or a Worker's vars. */
interface Vars {
  /** The URL of the upstream. */
  FETCHWAY_TARGET?: unknown;
  /** The other options of `createProxy`, as JSON. */
  FETCHWAY_OPTIONS?: unknown;
}

const isOnWorkers = globalThis.navigator?.userAgent === "Cloudflare-Workers";

/**
 * Reads the options of the proxy from the variables.
 * @throws TypeError whose message is one line that names the variable and the fix
 */
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

/** Creates the proxy. If the configuration is wrong, the process ends before the server accepts a connection. */
function createAtStart(): Proxy {
  const process: Process = (globalThis as unknown as { process: Process }).process;
  try {
    return createProxy(readOptions(process.env));
  } catch (error) {
    console.error((error as Error).message);
    process.exit(2);
  }
}

// A Worker gets its vars with the first request, which then creates the proxy.
let proxy: Proxy | undefined = isOnWorkers ? undefined : createAtStart();

async function answerRequest(
  request: Request,
  context?: unknown,
  execution?: ExecutionContext,
): Promise<Response> {
  try {
    proxy ??= createProxy(readOptions(context as Vars));
  } catch (error) {
    console.error((error as Error).message);
    return new Response("Internal Server Error: proxy_configuration_error\n", {
      status: 500,
      headers: { "proxy-status": "fetchway; error=proxy_configuration_error" },
    });
  }
  applyAbsoluteForm(request);
  return proxy.fetch(request, context, execution);
}

/** The default export: the handler, and options for the server that the runtime starts with it. */
interface Server {
  readonly fetch: typeof answerRequest;
  readonly [option: string]: unknown;
}

/**
 * Returns the options for the server that the runtime starts. They turn off the server's own limits for the size and the
 * duration of a request: by default, Bun answers 413 to a body of more than 128 MB, and Node 408 to a request that takes more
 * than 5 minutes. The proxy has its own limits, and its deadlines for bodies begin again with each chunk.
 */
function readServerOptions(): object {
  if (proxy === undefined) return {};
  // A proxy on Bun has these options as members; on other runtimes all are undefined.
  const { maxRequestBodySize, error, websocket } = proxy as Proxy &
    Partial<Record<"maxRequestBodySize" | "error" | "websocket", unknown>>;
  if (maxRequestBodySize !== undefined) return { maxRequestBodySize, error, websocket };
  // The `srvx` command reads the member `node`. Without `headersTimeout`, `requestTimeout: 0` would also turn off Node's limit
  // of one minute for the header section.
  return { node: { requestTimeout: 0, headersTimeout: 60_000 } };
}

/** A proxy that is ready to run: `deno serve`, `bun run`, `wrangler` and `srvx` start a server of this default export. */
const server: Server = { ...readServerOptions(), fetch: answerRequest };
export default server;
