import { createProxy } from "../../runtimes/undici.ts";
import { isHttp2, start, target } from "./_start.ts";

await start("node", createProxy({ target, pool: { http2: isHttp2 } }).nodeHandler);
