import { createProxy } from "#proxy";
import { createUndiciTransport } from "../../runtimes/undici.ts";
import { start, target } from "./_start.ts";

await start("node", createProxy({ target, transport: createUndiciTransport() }).nodeHandler);
