import { Agent } from "undici";
import { createProxy } from "#fetchway";
import { createUndiciTransport } from "../../runtimes/undici.ts";
import { isHttp2, start, target } from "./_start.ts";

const transport = createUndiciTransport(isHttp2 ? new Agent({ allowH2: true }) : undefined);
await start("node", createProxy({ target, transport }).nodeHandler);
