import { createProxy } from "#proxy";
import { start, target } from "./_start.ts";

await start("node", createProxy({ target }).nodeHandler);
