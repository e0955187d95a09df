import { proxyFetch } from "#proxy";
import { start, target } from "./_start.ts";

await start("srvx", (request) => proxyFetch(request, target));
