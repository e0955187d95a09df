import { H3, serve } from "h3";
import { portOfSrvx, quietly } from "../_srvx.ts";
import { announce, bindFetch } from "./_announce.ts";

await announce((setup) => {
  const fetch = bindFetch(setup);
  const app = new H3().all("/**", (event) => fetch(event.req));
  return portOfSrvx(serve(app, quietly));
});
