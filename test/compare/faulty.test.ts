/** The rules find the faults of wrong proxies, and no others. */
import { expect, test } from "vitest";
import { faulty } from "./faulty/faults.ts";
import { rows as all } from "./rows.ts";
import { isFailure, runRows } from "./run.ts";

// A proxy resets the connection of a request that is too large, and a relay in front of it may then lose the answer.
const rows = all.filter(({ group }) => group !== "Limits");

test.concurrent.each(faulty.map(([proxy, breaks]) => ({ name: proxy.name, proxy, breaks })))(
  "a proxy that $name",
  async ({ proxy, breaks }) => {
    const outcomes = await runRows(proxy, rows, { patience: 1500 });
    const failed = rows.filter(({ test: row }) => isFailure(outcomes.rows[row]));
    expect(failed.map(({ test: row }) => row).toSorted()).toEqual([...breaks].toSorted());
  },
);
