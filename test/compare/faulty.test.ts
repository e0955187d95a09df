/** Each faulty proxy fails exactly the rules that faults.ts lists for it. */
import { expect, test } from "vitest";
import { faulty } from "./faulty/faults.ts";
import { type RowName, rows as all } from "./rows.ts";
import { isFailure, runRows } from "./run.ts";

/** Rules whose outcome the relays themselves change, and rules that take much time: no fault of faults.ts breaks them. */
const LEFT_OUT: ReadonlySet<string> = new Set<RowName>([
  // The sockets of the relays buffer more of a message.
  "an upstream that does not read its WebSocket makes the client wait",
  "200 concurrent requests each get the response to their own body",
  "a body of 8 MiB arrives unchanged in both directions, or is refused",
  "an upstream's early 413 reaches a client that is still uploading",
]);

// A proxy resets the connection of a request that is too large, and a relay in front of it may then lose the answer.
const rows = all.filter(({ group, test: row }) => group !== "Limits" && !LEFT_OUT.has(row));

test.concurrent.each(faulty.map(([proxy, breaks]) => ({ name: proxy.name, proxy, breaks })))(
  "only the rules that faults.ts lists fail for a proxy that $name",
  { timeout: 300_000 },
  async ({ proxy, breaks }) => {
    const outcomes = await runRows(proxy, rows, { patience: [1000, 4000] });
    const failed = rows.filter(({ test: row }) => isFailure(outcomes.rows[row]));
    expect(failed.map(({ test: row }) => row).toSorted()).toEqual([...breaks].toSorted());
  },
);
