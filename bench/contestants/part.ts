import { createProxy } from "#fetchway";
import { PARTS } from "../parts/options.ts";
import { start, target } from "./_start.ts";

/** A proxy with one option, named on the command line; without a name, with the defaults. */
const part = PARTS.find(({ name }) => name === process.argv[2]);
await start("node", createProxy({ target, ...part?.options(target) }).nodeHandler);
