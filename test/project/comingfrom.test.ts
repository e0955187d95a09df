/** docs/coming-from.md agrees with the types of the other libraries, and with this library's options and errors. */
import { readFileSync } from "node:fs";
import { describe, expect, test } from "vitest";
import * as node from "../../runtimes/node.ts";
import * as workerd from "../../runtimes/workerd.ts";
import { poolSchema } from "../../src/options/pooloptions.ts";
import { proxySchema } from "../../src/options/proxyoptions.ts";
import { otherLibraries } from "../helpers/otherlibraries.ts";

const page = readFileSync(new URL("../../docs/coming-from.md", import.meta.url), "utf8");

/** Returns the code in a text. */
function codeIn(text: string): string[] {
  return Array.from(text.matchAll(/`([^`]+)`/g), ([, code = ""]) => code);
}

/** Returns the first name in a piece of code, such as `onRequest` or `c.req.raw`. */
function nameIn(code: string): string {
  return /^[\w.]+/.exec(code)?.[0] ?? "";
}

/** The rows of the page's tables, by section: an option of another library, and the code that replaces it in Fetchway. */
const sections = new Map(
  Array.from(page.matchAll(/^## (.+)\n([^]*?)(?=^## |(?![^]))/gm), ([, title = "", text = ""]) => {
    const rows = Array.from(
      text.matchAll(/^\| (`\w+`(?:, `\w+`)*) +\| (.*?) +\| (.*?) *\|$/gm),
      ([, names = "", here = "", why = ""]) => {
        const ours = codeIn(here);
        return codeIn(names).map((theirs) => ({ theirs, here, why, ours }));
      },
    );
    return [title, rows.flat()] as const;
  }),
);

const SHARED = "http-proxy";
/** The section about a framework's function that has no options. */
const NEXT = "Next's `rewrites()`";
/** The libraries that have the options of http-proxy as well as their own. */
const HEIRS = new Set(["http-proxy-middleware", "httpxy", "Vite's `server.proxy`"]);

/** The libraries whose option names are explained by the errors on Workers. */
const ON_WORKERS = new Set(["h3's `proxyRequest`", "`hono/proxy`"]);

/** Returns the advice in the error for an option of another library. */
async function errorFor(runtime: Pick<typeof node, "proxyFetch">, name: string): Promise<string> {
  const sent = runtime.proxyFetch(new Request("http://a.test"), "http://b.test", { [name]: "x" });
  const { message } = (await sent.catch((error: unknown) => error)) as Error;
  const start = `fetchway: bad option \`${name}\`: `;
  expect(message.slice(0, start.length)).toBe(start);
  return message.slice(start.length);
}

test("docs/coming-from.md has a section for each library", () => {
  const libraries = [...sections.keys()].filter((title) => title !== NEXT);
  expect(libraries.toSorted()).toEqual([...otherLibraries.keys()].toSorted());
});

describe.each([...otherLibraries])("the section about %s", (library, names) => {
  const own = sections.get(library) ?? [];
  const rows = HEIRS.has(library) ? [...own, ...(sections.get(SHARED) ?? [])] : own;

  test("every option of the library has a row", () => {
    expect(names.length).toBeGreaterThan(3);
    const listed = new Set(rows.map(({ theirs }) => theirs));
    expect(names.filter((name) => !listed.has(name))).toEqual([]);
  });

  test("every row of the table is an option of the library", () => {
    const known = new Set(library === SHARED ? [...otherLibraries.values()].flat() : names);
    expect(own.filter(({ theirs }) => !known.has(theirs))).toEqual([]);
    expect(new Set(own.map(({ theirs }) => theirs)).size).toBe(own.length);
  });

  test("every option of Fetchway that the section names exists", () => {
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

  test("an option that Fetchway does not have is refused by an error with the same advice as the option's row", async () => {
    for (const { theirs, here, why, ours } of own) {
      if (Object.hasOwn(proxySchema, theirs) || theirs === "target") continue;
      const message = await errorFor(node, theirs);
      if (here !== "–") {
        const named = ours.map((code) => nameIn(code));
        expect(
          named.filter((name) => message.includes(name)),
          `${theirs}: ${message}`,
        ).not.toEqual([]);
        continue;
      }
      const listed = new Set(codeIn(why).map((code) => nameIn(code)));
      const onWorkers = ON_WORKERS.has(library) ? [await errorFor(workerd, theirs)] : [];
      for (const fix of [message, ...onWorkers]) {
        const advised = codeIn(fix).map((code) => nameIn(code));
        expect(
          advised.filter((name) => !listed.has(name)),
          `${theirs}: ${fix}`,
        ).toEqual([]);
        if (advised.length === 0) expect(fix, theirs).toMatch(/leave it out|call the proxy/);
      }
    }
  });
});
