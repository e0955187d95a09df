import { serve } from "srvx";
import { proxyFetch } from "#proxy";
import { announce } from "./_announce.ts";

await announce(async ({ target, options }) => {
  const server = serve({
    fetch: (request) => proxyFetch(request, target, options),
    port: 0,
    hostname: "127.0.0.1",
    silent: true,
    gracefulShutdown: false,
  });
  await server.ready();
  return Number(new URL(server.url ?? "").port);
});
