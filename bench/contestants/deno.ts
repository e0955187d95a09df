/** Run by Deno itself: nothing of Node's here. */
import { createProxy } from "#proxy";

declare const Deno: {
  env: { get(name: string): string | undefined };
  serve(options: object, handler: (request: Request, info: unknown) => Promise<Response>): unknown;
};

const proxy = createProxy({ target: Deno.env.get("TARGET") ?? "" });
const port = Number(Deno.env.get("PORT"));
Deno.serve({ port, hostname: "127.0.0.1", onListen() {} }, proxy.fetch);
