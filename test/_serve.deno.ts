/** The home of servers on Deno, for hosts and the bench. Run by Deno itself: nothing of Node's here. */

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

/** Serves on 127.0.0.1, on a free port unless told. @returns the port */
export function serveDeno(handler: DenoHandler, port = 0): number {
  const options = {
    port,
    hostname: "127.0.0.1",
    onListen() {},
    // As Deno's own, except that Deno's also prints response bodies that break off.
    onError(error: unknown) {
      if ((error as Error).name !== "ProxyError") console.error(error);
      return new Response(null, { status: 500 });
    },
  };
  return Deno.serve(options, handler).addr.port;
}

/** Ends this process with its parent, which holds stdin open as long as it lives. */
export async function exitWithParent(): Promise<never> {
  for await (const _ of Deno.stdin.readable);
  return Deno.exit(0);
}
