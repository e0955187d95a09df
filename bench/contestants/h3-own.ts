import { H3, proxyRequest, serve } from "h3";
import { hostname, port, target } from "./_serve.ts";

const app = new H3().all("/**", (event) =>
  proxyRequest(event, target + event.url.pathname + event.url.search),
);
serve(app, { port, hostname, silent: true });
