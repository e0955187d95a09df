/** docs/coming-from.md against the types of the other libraries, the options, and the errors. */
import { readFileSync } from "node:fs";
import { describe, expect, test } from "vitest";
import { proxyFetch } from "../runtimes/node.ts";
import { poolSchema } from "../src/options/pooloptions.ts";
import { proxySchema } from "../src/options/proxyoptions.ts";
import { otherLibraries } from "./_otherlibraries.ts";

const page = readFileSync(new URL("../docs/coming-from.md", import.meta.url), "utf8");

/** The rows of each section: the name there, and the code in the cell of what to write here. */
const sections = new Map(
  Array.from(page.matchAll(/^## (.+)\n([^]*?)(?=^## |(?![^]))/gm), ([, title = "", text = ""]) => {
    const rows = Array.from(
      text.matchAll(/^\| `(\w+)` +\| (.*?) +\| (.*?) *\|$/gm),
      ([, theirs = "", here = ""]) => ({
        theirs,
        here,
        ours: Array.from(here.matchAll(/`([^`]+)`/g), ([, code = ""]) => code),
      }),
    );
    return [title, rows] as const;
  }),
);

const SHARED = "http-proxy";
/** The libraries that also have the options of http-proxy. */
const HEIRS = new Set(["http-proxy-middleware", "httpxy", "Vite's `server.proxy`"]);

test("there is a section for each library", () => {
  expect([...sections.keys()].toSorted()).toEqual([...otherLibraries.keys()].toSorted());
});

describe.each([...otherLibraries])("%s", (library, names) => {
  const own = sections.get(library) ?? [];
  const rows = HEIRS.has(library) ? [...own, ...(sections.get(SHARED) ?? [])] : own;

  test("every option of the library has a row", () => {
    expect(names.length).toBeGreaterThan(10);
    const told = new Set(rows.map(({ theirs }) => theirs));
    expect(names.filter((name) => !told.has(name))).toEqual([]);
  });

  test("every row is an option of the library", () => {
    const known = new Set(library === SHARED ? [...otherLibraries.values()].flat() : names);
    expect(own.filter(({ theirs }) => !known.has(theirs))).toEqual([]);
    expect(new Set(own.map(({ theirs }) => theirs)).size).toBe(own.length);
  });

  test("every option that is named here exists", () => {
    const options = new Set([
      ...Object.keys(proxySchema),
      ...Object.keys(poolSchema),
      "target",
      "pool",
    ]);
    for (const { theirs, here, ours } of own) {
      if (here === "–") continue;
      expect(ours, theirs).not.toEqual([]);
      for (const code of ours) expect(options, theirs).toContain(/^\w+/.exec(code)?.[0]);
      const [, members] = /^pool: \{ (\w+) \}$/.exec(ours[0] ?? "") ?? [];
      if (members !== undefined) expect(Object.keys(poolSchema)).toContain(members);
    }
  });

  test("an option without a row of the same name is refused, and the error names an option of the row", async () => {
    for (const { theirs, here, ours } of own) {
      if (Object.hasOwn(proxySchema, theirs) || theirs === "target") continue;
      const options = { [theirs]: "x" };
      const sent = proxyFetch(new Request("http://a.test"), "http://b.test", options);
      const { message } = (await sent.catch((error: unknown) => error)) as Error;
      expect(message).toContain(`bad option \`${theirs}\``);
      if (here === "–") continue;
      const named = ours.map((code) => /^\w+/.exec(code)?.[0] ?? "");
      expect(
        named.filter((name) => message.includes(name)),
        `${theirs}: ${message}`,
      ).not.toEqual([]);
    }
  });
});
