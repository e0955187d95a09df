import process from "node:process";
import { type Server, type ServerHandler, serve } from "srvx";
import type { Proxy } from "#proxy";
import { UsageError } from "./read.ts";

/**
 * Starts a server.
 * @param port 0 for a free one
 * @param websocket the handlers of WebSockets, which only Bun's server needs
 * @throws UsageError if the server cannot listen on that port or host
 */
export async function listen(
  fetch: ServerHandler,
  port: number,
  host: string,
  websocket?: unknown,
): Promise<Server> {
  try {
    const server = serve({
      fetch,
      port,
      hostname: host,
      silent: true,
      gracefulShutdown: false,
      // Turn off the servers' limits, which would end even a body whose chunks still arrive: the proxy has its own limits.
      // Keep Node's limit of one minute for the header section: `requestTimeout: 0` alone would turn it off, too.
      node: { requestTimeout: 0, headersTimeout: 60_000 },
      bun: {
        idleTimeout: 0,
        maxRequestBodySize: Number.MAX_SAFE_INTEGER,
        ...(websocket !== undefined && { websocket: websocket as never }),
      },
    });
    return await server.ready();
  } catch (error) {
    throw explainRefusal(error, port, host);
  }
}

function explainRefusal(error: unknown, port: number, host: string): UsageError {
  const { code = "", message } = error as Error & { code?: string };
  switch (code) {
    case "EADDRINUSE":
      return new UsageError(`port ${port} is in use: use --port with another, or 0 for a free one`);
    case "EACCES":
      return new UsageError(`port ${port} needs more rights: use --port with one above 1023`);
    case "EADDRNOTAVAIL":
    case "EAI_AGAIN":
    case "ENOTFOUND":
      return new UsageError(
        `host ${JSON.stringify(host)} is not an address of this machine: use --host 127.0.0.1 or 0.0.0.0`,
      );
    default:
      return new UsageError(
        `--host ${JSON.stringify(host)} --port ${port} cannot be used: ${message}`,
      );
  }
}

/** The members of Node's server and its responses that are used here. */
interface NodeServer {
  on(event: "request", listener: (request: unknown, response: NodeResponse) => void): unknown;
}
interface NodeResponse {
  readonly headersSent: boolean;
  setHeader(name: string, value: string): unknown;
  once(event: "close", listener: () => void): unknown;
}

/** Counts the requests that a server is answering. */
class Running {
  readonly #server: Server;
  readonly #responses: Set<NodeResponse> = new Set();
  #last = false;

  constructor(server: Server) {
    this.#server = server;
    (server.node?.server as NodeServer | undefined)?.on("request", (_, response) => {
      this.#responses.add(response);
      response.once("close", () => this.#responses.delete(response));
      if (this.#last) closeAfter(response);
    });
  }

  /** The number of requests that the server is answering; NaN where the runtime does not report it. */
  get count(): number {
    if (this.#server.node) return this.#responses.size;
    return this.#server.bun?.server?.pendingRequests ?? NaN;
  }

  /** Stops accepting requests. Resolves when all have been answered, even if clients stay connected. */
  async finish(): Promise<void> {
    this.#last = true;
    // Otherwise a busy client would keep sending requests on its connection.
    for (const response of this.#responses) closeAfter(response);
    let closed = false;
    this.#server.close().then(
      () => (closed = true),
      () => (closed = true),
    );
    while (!closed && this.count !== 0) await delay(20);
  }
}

/** Makes Node's server close the connection after a response, if the head of the response has not been sent. */
function closeAfter(response: NodeResponse): void {
  if (!response.headersSent) response.setHeader("connection", "close");
}

function delay(ms: number): Promise<void> {
  return new Promise((resolve) => setTimeout(resolve, ms));
}

/** Milliseconds within which two signals count as one: under npm, one Ctrl+C arrives from the terminal and from npm. */
const SAME_SIGNAL = 250;
const EXIT_CODES = { SIGINT: 130, SIGTERM: 143 };

/**
 * Ends the process on SIGINT or SIGTERM, when the running requests have ended or `stopTimeout` is over. A second signal
 * ends the process at once.
 */
export function stopOnSignals(
  server: Server,
  proxy: Pick<Proxy, "close">,
  stopTimeout: number,
): void {
  const running = new Running(server);
  let since: number | undefined;

  async function stop(): Promise<void> {
    const finished = running.finish().then(() => proxy.close());
    const { count } = running;
    if (count > 0) {
      console.log(`stopping: ${count} still running; Ctrl+C again to end at once`);
    }
    await Promise.race([finished, delay(stopTimeout)]);
    process.exit(0);
  }

  for (const signal of ["SIGINT", "SIGTERM"] as const) {
    process.on(signal, () => {
      if (since === undefined) {
        since = performance.now();
        void stop();
      } else if (performance.now() - since > SAME_SIGNAL) process.exit(EXIT_CODES[signal]);
    });
  }
}
