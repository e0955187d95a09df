import { H3, serve } from "h3";
import { proxyFetch } from "#proxy";
import { portOfSrvx, quietly } from "../_srvx.ts";
import { announce } from "./_announce.ts";

await announce(({ target, options }) => {
  const app = new H3().all("/**", (event) => proxyFetch(event.req, target, options));
  return portOfSrvx(serve(app, quietly));
});
