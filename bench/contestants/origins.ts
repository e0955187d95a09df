import { createProxy } from "#fetchway";
import { start, target } from "./_start.ts";

const count = Number(process.argv[2]);
const { port } = new URL(target);
// On Linux, each address in 127.0.0.0/8 leads to this machine.
const targets = Array.from(
  { length: count },
  (_, i) => `http://127.1.${Math.floor(i / 250)}.${1 + (i % 250)}:${port}`,
);
let next = 0;
await start("node", createProxy({ target: () => targets[next++ % count] as string }).nodeHandler);
