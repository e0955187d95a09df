/** Every code block of README and docs/ is run by a test, or has a reason why it is not. */
import { expect, test } from "vitest";
import { blocks, blocksOf, matches, NOT_RUN, RUN } from "./_blocks.ts";

const places = blocks.map(({ place }) => place);

test("each block is run by one test file, or has a reason", () => {
  expect(places.length).toBeGreaterThan(55);
  const runs = Object.keys(RUN).flatMap(blocksOf);
  expect(runs).toEqual([...new Set(runs)]);
  expect([...runs, ...Object.keys(NOT_RUN)].toSorted()).toEqual(places.toSorted());
});

test("the ledger names no block that does not exist", () => {
  const patterns = Object.values(RUN).flat();
  expect(patterns.filter((each) => !places.some((place) => matches([each], place)))).toEqual([]);
});

test("nearly all TypeScript is run", () => {
  const typed = blocks.filter(({ language, place }) => language === "ts" && place in NOT_RUN);
  expect(typed.map(({ place }) => place)).toEqual([
    "docs/deploy.md: Workers (2)",
    "docs/frameworks.md: NestJS",
    "docs/frameworks.md: Nitro (2)",
  ]);
});
