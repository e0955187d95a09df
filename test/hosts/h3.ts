import { H3, serve } from "h3";
import { proxyFetch } from "#proxy";
import { announce } from "./_announce.ts";

await announce(async ({ target, options }) => {
  const app = new H3().all("/**", (event) => proxyFetch(event.req, target, options));
  const server = serve(app, {
    port: 0,
    hostname: "127.0.0.1",
    silent: true,
    gracefulShutdown: false,
  });
  await server.ready();
  return Number(new URL(server.url ?? "").port);
});
