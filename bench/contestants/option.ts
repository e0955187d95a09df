import { createProxy } from "#fetchway";
import { ROWS } from "../options/rows.ts";
import { start, target } from "./_start.ts";

/** The row with the option that the command line names; undefined for the name `defaults`. */
const row = ROWS.find(({ name }) => name === process.argv[2]);
await start("node", createProxy({ target, ...row?.options(target) }).nodeHandler);
