/** The size of the entries that Workers bundle. The start time of a Worker and its upload limit depend on it. */
import { expect, test } from "vitest";
import { readPage } from "./_readme.ts";
import { bundleOf, readTable, renderTables } from "./_size.ts";

/**
 * The maximum number of bytes of an entry, minified and compressed with gzip. A commit that raises a limit says which feature
 * needs the bytes.
 */
const LIMITS = { workerd: 31_450, fetch: 30_390 };

test.each(Object.entries(LIMITS))("%s has at most %i compressed bytes", async (entry, limit) => {
  const { files, gzip, text } = await bundleOf(`export * from "./runtimes/${entry}.ts"`, entry);
  // The runtime itself sends the requests, so the bundle must not contain Fetchway's own client, pool and sockets. Failover
  // is imported only with a target of several upstreams, and the code of a mirror only with one.
  const absent =
    /\/(?:http1|sockets|node)\/|\/upstreams\/(?!startupstreams)|exchange\/mirror|pool|otherlibraries|trailers/;
  expect(Object.keys(files).filter((file) => absent.test(file))).toEqual([]);
  expect(text).toContain("createProxy");
  expect(gzip).toBeLessThanOrEqual(limit);
});

test.each([
  ["proxyFetch", "createProxy"],
  ["createProxy", "proxyFetch"],
])("a bundle that imports only %s contains no code of %s", async (name, other) => {
  const [all, alone] = await Promise.all([
    bundleOf('export * from "./runtimes/workerd.ts"'),
    bundleOf(`export { ${name} } from "./runtimes/workerd.ts"`),
  ]);
  const call = new RegExp(`${other}\\((?:request, target, options\\?|options)\\) takes`);
  expect(all.text).toMatch(call);
  expect(alone.text).not.toMatch(call);
});

/** Whether a number of the page is close enough: a page that is slightly out of date must not fail the run. */
function isNear(measured: string, written: string): boolean {
  const difference = Math.abs(Number.parseFloat(measured) - Number.parseFloat(written));
  return difference <= Math.max(0.2, 0.02 * Number.parseFloat(measured)) || measured === written;
}

/** Returns the numbers of a table's row. */
function sizesOf(row: readonly string[]): string[] {
  return row.filter((cell) => /^\d+\.\d$/.test(cell));
}

test.each(Object.keys(renderTables))("the table %s of docs/size.md is up to date", async (name) => {
  const measured = (await renderTables[name]?.()) ?? [];
  const written = readTable(readPage("docs/size.md"), name);
  const nameOf = ([first = ""]: readonly string[]): string => first;
  expect(written.map(nameOf).toSorted()).toEqual(measured.map(nameOf).toSorted());
  const wrong = measured.filter((row) => {
    const numbers = sizesOf(written.find((other) => nameOf(other) === nameOf(row)) ?? []);
    return !sizesOf(row).every((size, i) => isNear(size, numbers[i] ?? "0.0"));
  });
  expect(wrong, "run: npm run size").toEqual([]);
});

test("README states the same sizes as docs/size.md", () => {
  const sizes =
    /([\d.]+) kB of compressed code \(h3's `proxyRequest`: ([\d.]+), httpxy: ([\d.]+)\)/;
  const [, ...written] = sizes.exec(readPage("README.md")) ?? [];
  const page = readPage("docs/size.md");
  const rows = [...readTable(page, "entries"), ...readTable(page, "peers")];
  const names = ["Workers", "`proxyRequest` of h3", "`proxyFetch` of httpxy"];
  expect(written).toHaveLength(names.length);
  const right = names.map((name) => rows.find(([first]) => first === name)?.[1] ?? "");
  expect(right.filter((size, i) => !isNear(size, written[i] ?? ""))).toEqual([]);
});
