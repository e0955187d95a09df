import { createProxy } from "#fetchway";
import { ROWS } from "../options/rows.ts";
import { start, target } from "./_start.ts";

/** A proxy with one option, named on the command line; without a name, with the defaults. */
const row = ROWS.find(({ name }) => name === process.argv[2]);
await start("node", createProxy({ target, ...row?.options(target) }).nodeHandler);
