/** The little of Koa that a recipe uses: it has no types of its own. */
declare module "koa" {
  import type { IncomingMessage, Server, ServerResponse } from "node:http";

  interface Context {
    readonly path: string;
    readonly req: IncomingMessage;
    readonly res: ServerResponse;
    respond: boolean;
  }

  export default class Koa {
    use(middleware: (ctx: Context, next: () => Promise<void>) => unknown): this;
    listen(port: number): Server;
  }
}
