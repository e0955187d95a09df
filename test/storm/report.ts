/** The findings of a storm as text. */
import type { Storm, Violation } from "./storm.ts";

export function createSeed(): number {
  return Math.floor(Math.random() * 2 ** 31);
}

/** How many violations of one invariant are shown with their plans. */
const SHOWN = 2;

/** A line of figures, and the first violations of each invariant with their plans and commands. */
export function describeStorm(name: string, storm: Storm): string {
  const { begun, elapsed, repeated, tally, violations } = storm;
  const outcomes = Object.entries(tally).map(([outcome, count]) => `${count} ${outcome}`);
  const rate = Math.round(begun / (elapsed / 1000));
  const figures = `${begun} exchanges, ${rate} a second: ${outcomes.join(", ")}; ${repeated} sent again`;
  const groups = Object.entries(Object.groupBy(violations, ({ invariant }) => invariant));
  const lines = groups.map(([invariant, found]) => {
    const shown = found.slice(0, SHOWN).map(describeViolation).join("\n");
    return `  ${found.length} times "${invariant}":\n${shown}`;
  });
  const first = violations[0];
  const verdict =
    first === undefined
      ? "nothing wrong"
      : `${violations.length} VIOLATIONS, the first after ${first.after} exchanges`;
  return [`${name}: ${figures}; ${verdict}`, ...lines].join("\n");
}

function describeViolation({ what, record, command }: Violation): string {
  if (record === undefined) return `    ${what}\n      run again: ${command}`;
  const { plan, session } = record;
  const { exchanges, ...others } = session;
  const index = exchanges.indexOf(plan);
  const place = `exchange ${index} of ${exchanges.length} in the session ${JSON.stringify(others)}`;
  return `    ${what}\n      plan: ${JSON.stringify(plan)}\n      ${place}\n      run the session alone: ${command}`;
}
