import { createProxy } from "#fetchway";
import { ROWS } from "../options/rows.ts";
import { start, target } from "./_start.ts";

/** The option to measure, which the command line names; undefined (the defaults) without a name. */
const row = ROWS.find(({ name }) => name === process.argv[2]);
await start("node", createProxy({ target, ...row?.options(target) }).nodeHandler);
