import { proxyFetch } from "#fetchway";
import { start, target } from "./_start.ts";

await start("srvx", (request) => proxyFetch(request, target));
