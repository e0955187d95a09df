/** README lists every part of the code that keeps bodies in memory, with the limit that the code has. */
import { globSync, readFileSync } from "node:fs";
import { expect, test } from "vitest";
import { HIGH_WATER_MARK } from "../../src/body/source.ts";
import { mirrorDefaults } from "../../src/options/mirrorsettings.ts";
import { defaults } from "../../src/options/proxyoptions.ts";
import { readPage } from "./_readme.ts";

const root = new URL("../../", import.meta.url);
const rows = readPage("README.md")
  .split("## What is kept in memory")[1]
  ?.split("\n## ")[0]
  ?.split("\n")
  .filter((line) => line.startsWith("| ") && !/^\| (?:what|---)/.test(line));

/** The places in the code that keep the bytes of a body, each with the rows of README about it. */
const KEEPERS: Readonly<Record<string, readonly string[]>> = {
  "src/bodies.ts: HeldBody": ["transformText"],
  "src/exchange/hooks.ts: UnframedBody": ["without length"],
  "src/exchange/interceptors.ts: ReplayBody": ["followRedirects", "retry", "`wait`"],
  "src/exchange/mirror.ts: CopiedBody": ["mirror"],
  "src/request/incoming.ts: UnframedBody": ["without length"],
  "src/streams.ts: HeldBody": ["awaitFirstByte"],
};

test("README has a row for each place in the code that keeps bodies, and no other rows", () => {
  const files = globSync("{src,runtimes,integrations,command}/**/*.ts", { cwd: root });
  const found = files.flatMap((file) => {
    const source = readFileSync(new URL(file, root), "utf8");
    const made = source.matchAll(/\bnew (CopiedBody|HeldBody|ReplayBody|UnframedBody)\(/g);
    return Array.from(made, ([, name]) => `${file}: ${name}`);
  });
  expect(found.toSorted()).toEqual(Object.keys(KEEPERS));
  const named = new Set(Object.values(KEEPERS).flat());
  expect(rows).toHaveLength(named.size);
  for (const name of named) {
    expect(
      rows?.filter((row) => row.split("|")[1]?.includes(name)),
      name,
    ).toHaveLength(1);
  }
});

/** Returns the limit in a row, in bytes. */
function limitOf(name: string): number {
  const row = rows?.find((each) => each.split("|")[1]?.includes(name)) ?? "";
  const [, number, unit] = /(\d+) ([KM])iB/.exec(row.split("|")[3] ?? "") ?? [];
  return Number(number) * (unit === "M" ? 1024 ** 2 : 1024);
}

/** Returns the number that a pattern finds in a source file. */
function numberIn(file: string, pattern: RegExp): number {
  const source = readFileSync(new URL(file, root), "utf8");
  return Number(pattern.exec(source)?.[1]?.replaceAll("_", ""));
}

test("README's limits of kept bodies are those of the code", () => {
  expect(limitOf("followRedirects")).toBe(defaults.replayLimit);
  expect(limitOf("retry")).toBe(defaults.replayLimit);
  expect(limitOf("`wait`")).toBe(numberIn("src/exchange/wait.ts", /KEPT = ([\d_]+)/));
  expect(limitOf("mirror")).toBe(mirrorDefaults.maxBody);
  expect(limitOf("transformText")).toBe(numberIn("src/bodies.ts", /maxBytes = ([\d_]+)/));
  expect(limitOf("awaitFirstByte")).toBe(HIGH_WATER_MARK);
  expect(limitOf("without length")).toBe(numberIn("src/body/unframed.ts", /MAX_BYTES = ([\d_]+)/));
});
