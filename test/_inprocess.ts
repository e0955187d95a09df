/** Targets in process, tried one after the other. Imported by programs of every runtime: no runtime's API here. */
import type { Case, Create } from "./inprocess/_case.ts";
import { answers } from "./inprocess/answers.ts";
import { bodies } from "./inprocess/bodies.ts";
import { failures } from "./inprocess/failures.ts";
import { requests } from "./inprocess/requests.ts";

export const cases: Record<string, Case> = { ...requests, ...bodies, ...answers, ...failures };

/** What went wrong, by case; null for nothing. */
export async function runCases(create: Create): Promise<Record<string, string | null>> {
  const outcomes: Record<string, string | null> = {};
  for (const [name, body] of Object.entries(cases)) {
    outcomes[name] = await body(create).then(
      () => null,
      (error: unknown) => String(error),
    );
  }
  return outcomes;
}
