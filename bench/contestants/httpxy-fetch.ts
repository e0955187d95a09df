import { proxyFetch } from "httpxy";
import { start, target } from "./_start.ts";

await start("srvx", (request) => proxyFetch(target, request));
