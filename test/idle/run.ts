/**
 * Opens 20 000 idle connections to the command with its default limits, and checks that other clients are served.
 *
 *     npm run test:idle -- --connections 20000
 *
 * It needs Linux, and about 20 000 file descriptors for the server (`ulimit -n`).
 */
import process from "node:process";
import { parseArgs } from "node:util";
import { clientLimitSchema } from "../../command/flags/commandoptions.ts";
import { maxTurnedAway } from "../../command/limits/clientconnections.ts";
import { shareLimits } from "../../command/limits/clientlimits.ts";
import { defaultsOf } from "../../src/schema/schema.ts";
import { holdIdle } from "./_holdidle.ts";

/** The milliseconds within which a request must be answered during the flood. */
const PATIENCE = 2_000;

const { values } = parseArgs({ options: { connections: { type: "string", default: "20000" } } });
const count = Number(values.connections);
const { maxConnections } = shareLimits(defaultsOf(clientLimitSchema));

let isGood = true;
for (const [name, text] of [
  ["that send nothing", ""],
  ["that send half a header section", "GET / HTTP/1.1\r\nHost: a\r\nX: a"],
] as const) {
  const seen = await holdIdle(count, [], text);
  const answered = seen.statuses.filter((status) => status === 200).length;
  console.log(
    `${seen.opened} connections ${name}: the server kept ${seen.opened - seen.closed} of them ` +
      `with ${Math.round(seen.bytesEach)} bytes each; ` +
      `${answered} of ${seen.statuses.length} requests answered, the slowest in ${Math.round(seen.slowest)} ms`,
  );
  isGood &&=
    seen.opened === count &&
    seen.opened - seen.closed <= maxConnections + maxTurnedAway(maxConnections) &&
    answered === seen.statuses.length &&
    seen.slowest < PATIENCE;
}
if (!isGood) process.exitCode = 1;
