/** The proxy of one line, on Bun. */
declare const Bun: {
  env: Record<string, string | undefined>;
  serve(options: object): unknown;
};

const { PORT, TARGET } = Bun.env;
Bun.serve({
  port: Number(PORT),
  hostname: "127.0.0.1",
  fetch(request: Request) {
    const { pathname, search } = new URL(request.url);
    return fetch(new Request(TARGET + pathname + search, request));
  },
});
