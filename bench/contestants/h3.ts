import { proxyFetch } from "#fetchway";
import { start, target } from "./_start.ts";

await start("h3", (request) => proxyFetch(request, target));
