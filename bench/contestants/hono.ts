import { proxyFetch } from "#fetchway";
import { start, target } from "./_start.ts";

await start("hono", (request) => proxyFetch(request, target));
