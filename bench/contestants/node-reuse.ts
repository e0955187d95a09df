import { createProxy } from "#proxy";
import { start, target } from "./_start.ts";

const proxy = createProxy({ target, pool: { reuseBuffers: true } });
proxy.attach(await start("node", proxy.nodeHandler));
