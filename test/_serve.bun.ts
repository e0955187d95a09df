/** The home of servers on Bun, for hosts and the bench. Run by Bun itself: nothing of Node's here. */

/** What `Bun.serve` takes, as `export default createProxy(…)` has it: its limits and its error handling are part of it. */
export interface BunHandler {
  fetch(
    request: Request,
    server: { timeout(request: Request, seconds: number): void },
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

/** Serves on 127.0.0.1, on a free port unless told. @returns the port */
export function serveBun(handler: BunHandler, port = 0): number {
  return Bun.serve({ ...handler, port, hostname: "127.0.0.1" }).port;
}

/** Ends this process with its parent, which holds stdin open as long as it lives. */
export async function exitWithParent(): Promise<never> {
  for await (const _ of Bun.stdin.stream());
  return process.exit();
}

declare const process: { exit(): never };
