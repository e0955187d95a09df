import { H3, proxyRequest } from "h3";
import { options, start, target } from "./_start.ts";

const app = new H3().all("/**", (event) =>
  proxyRequest(event, target + event.url.pathname + event.url.search, options),
);
await start("h3", app);
