import { createProxy } from "#fetchway";
import { isHttp2, start, target } from "./_start.ts";

const proxy = createProxy({ target, ...(isHttp2 && { pool: { http2: true } }) });
proxy.attach(await start("node", proxy.nodeHandler));
