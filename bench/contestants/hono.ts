import { proxyFetch } from "#proxy";
import { start, target } from "./_start.ts";

await start("hono", (request) => proxyFetch(request, target));
