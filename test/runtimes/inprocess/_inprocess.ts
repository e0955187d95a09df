/**
 * Runs the cases of targets in this process one after the other. Programs of every runtime import this file, so it uses
 * only web APIs.
 */
import type { Case, Create } from "./_case.ts";
import { answers } from "./answers.ts";
import { bodies } from "./bodies.ts";
import { failures } from "./failures.ts";
import { requests } from "./requests.ts";

export const cases: Record<string, Case> = { ...requests, ...bodies, ...answers, ...failures };

/**
 * Runs all cases.
 * @returns the error of each case by its name, or null if the case has passed
 */
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
