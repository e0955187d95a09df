/** Types for the small part of Koa that tests use, because the package contains no types. */
declare module "koa" {
  import type { IncomingMessage, Server, ServerResponse } from "node:http";

  interface Context {
    readonly path: string;
    readonly req: IncomingMessage;
    readonly res: ServerResponse;
    readonly cookies: { set(name: string, value: string): void };
    respond: boolean;
    status: number;
    body: unknown;
    set(name: string, value: string | readonly string[]): void;
  }

  export default class Koa {
    silent: boolean;
    use(middleware: (ctx: Context, next: () => Promise<void>) => unknown): this;
    callback(): (req: IncomingMessage, res: ServerResponse) => void;
    listen(port: number): Server;
  }
}
