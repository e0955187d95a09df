/** Every code block of README and docs/ is run by a test, or has a reason why it is not. */
import { expect, test } from "vitest";
import { apps } from "../frameworks/apps.ts";
import { blocks, blocksOf, matches, NOT_RUN, RUN } from "./_blocks.ts";

const places = blocks.map(({ place }) => place);

test("each code block is run by a single test file, or has a reason why it is not run", () => {
  expect(places.length).toBeGreaterThan(55);
  const runs = Object.keys(RUN).flatMap(blocksOf);
  expect(runs).toEqual([...new Set(runs)]);
  expect([...runs, ...Object.keys(NOT_RUN)].toSorted()).toEqual(places.toSorted());
});

test("each entry of `RUN` names a block that exists", () => {
  const patterns = Object.values(RUN).flat();
  expect(patterns.filter((each) => !places.some((place) => matches([each], place)))).toEqual([]);
});

const typed = blocks.filter(({ language }) => language === "ts").map(({ place }) => place);
const inMatrix = Object.values(apps)
  .flatMap(({ files }) => Object.values(files))
  .flatMap((file) => (typeof file === "string" ? [] : [file.place]));

test("the matrix of frameworks runs each TypeScript block of docs/frameworks.md", () => {
  const framework = typed.filter((place) => place.startsWith("docs/frameworks.md: "));
  expect(framework.length).toBeGreaterThan(10);
  expect(framework.filter((place) => !inMatrix.includes(place))).toEqual([]);
  expect(inMatrix.filter((place) => !typed.includes(place))).toEqual([]);
});

test("all TypeScript blocks are run, except for one of docs/deploy.md", () => {
  const others = typed.filter((place) => place in NOT_RUN && !inMatrix.includes(place));
  expect(others).toEqual(["docs/deploy.md: Workers (2)"]);
});
