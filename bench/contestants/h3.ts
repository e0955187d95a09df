import { H3, serve } from "h3";
import { proxyFetch } from "#proxy";
import { hostname, port, target } from "./_serve.ts";

const app = new H3().all("/**", (event) => proxyFetch(event.req, target));
serve(app, { port, hostname, silent: true });
