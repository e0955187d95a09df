/** Starts servers on Deno, for hosts and benchmarks. It runs in Deno without Node's modules. */

export type DenoHandler = (request: Request, info: unknown) => Response | Promise<Response>;

declare const Deno: {
  env: { get(name: string): string | undefined };
  exit(code: number): never;
  serve(
    options: {
      port: number;
      hostname: string;
      onListen(): void;
      onError(error: unknown): Response;
    },
    handler: DenoHandler,
  ): { addr: { port: number } };
  stdin: { readable: ReadableStream<Uint8Array> };
};

export function getEnv(name: string): string | undefined {
  return Deno.env.get(name);
}

/**
 * Serves on 127.0.0.1 on the given port, or on a free one if it is 0.
 * @returns the port
 */
export function serveDeno(handler: DenoHandler, port = 0): number {
  const options = {
    port,
    hostname: "127.0.0.1",
    onListen() {},
    // Deno's default error handler would also print a `ProxyError` for each truncated response body.
    onError(error: unknown) {
      if ((error as Error).name !== "ProxyError") console.error(error);
      return new Response(null, { status: 500 });
    },
  };
  return Deno.serve(options, handler).addr.port;
}

/** Exits when the parent process ends: the parent holds this process's stdin open until then. */
export async function exitWithParent(): Promise<never> {
  for await (const _ of Deno.stdin.readable);
  return Deno.exit(0);
}
