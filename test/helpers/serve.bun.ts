/** Starts servers on Bun, for hosts and benchmarks. It runs in Bun without Node's modules. */

/** A handler for `Bun.serve`. A proxy is one: it has further options of `Bun.serve`, which `serveBun` passes on. */
export interface BunHandler {
  fetch(
    request: Request,
    server: {
      timeout(request: Request, seconds: number): void;
      requestIP(request: Request): { address: string } | null;
    },
  ): Response | Promise<Response>;
  websocket?: unknown;
}

declare const Bun: {
  env: Record<string, string | undefined>;
  serve(options: BunHandler & { port: number; hostname: string }): { port: number };
  stdin: { stream(): ReadableStream<Uint8Array> };
};

export function getEnv(name: string): string | undefined {
  return Bun.env[name];
}

/**
 * Serves on 127.0.0.1 on the given port, or on a free one if it is 0.
 * @returns the port
 */
export function serveBun(handler: BunHandler, port = 0): number {
  return Bun.serve({ ...handler, port, hostname: "127.0.0.1" }).port;
}

/** Exits when the parent process ends: the parent holds this process's stdin open until then. */
export async function exitWithParent(): Promise<never> {
  for await (const _ of Bun.stdin.stream());
  return process.exit();
}

declare const process: { exit(): never };
