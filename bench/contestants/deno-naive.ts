/** The proxy of one line, on Deno. */
declare const Deno: {
  env: { get(name: string): string | undefined };
  serve(options: object, handler: (request: Request) => Promise<Response>): unknown;
};

const target = Deno.env.get("TARGET") ?? "";
const port = Number(Deno.env.get("PORT"));
Deno.serve({ port, hostname: "127.0.0.1", onListen() {} }, (request) => {
  const { pathname, search } = new URL(request.url);
  return fetch(new Request(target + pathname + search, request));
});
