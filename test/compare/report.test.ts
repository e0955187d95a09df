/** The page of the scoreboard, and the command that writes it. */
import { globSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { expect, test } from "vitest";
import { readFlags } from "../../bench/flags.ts";
import { readLedger } from "./ledger.ts";
import { flags, withhold } from "./main.ts";
import { readResults, render, type Result, toMatrix, toPage, toProxyPage } from "./report.ts";
import { rows } from "./rows.ts";
import type { Failure } from "./run.ts";
import { isWithheld } from "./withheld.ts";

const root = join(import.meta.dirname, "../..");
const rules = readLedger();
const [first, second] = rules.filter(({ level }) => level === "MUST") as [
  (typeof rules)[0],
  (typeof rules)[0],
];

const failure: Failure = {
  why: "expected 1 to be 2",
  passages: [{ way: "client 1 → proxy", bytes: "GET / HTTP/1.1\\r\\n\n\\r\\n\n", end: "reset" }],
  hardened: { "strict on": "passed" },
};
const result: Result = {
  name: "other",
  source: "apt",
  version: "1.2",
  configuration: "listen 80;",
  hardenings: { "strict on": "Refuses more." },
  rows: { [first.test]: failure, [second.test]: "passed" },
};

test("docs/scoreboard.md and the pages of the proxies are those of the stored results", () => {
  const results = readResults();
  const files = render(results);
  for (const [file, content] of files) {
    const isCurrent = readFileSync(join(root, file), "utf8") === content;
    expect(isCurrent, `${file} is out of date; run: npm run compare -- --render`).toBe(true);
  }
  const pages = globSync("docs/scoreboard/*.md", { cwd: root });
  expect(pages.filter((page) => !files.has(page))).toEqual([]);
  expect(results.slice(0, 2).map(({ name }) => name)).toEqual(["fetchway", "fetchway-node"]);
});

test("each stored result has an outcome for every rule, except for withheld failures", () => {
  const titles = rows.map(({ test: title }) => title as string);
  for (const { name, rows: outcomes } of readResults()) {
    expect(Object.keys(outcomes).filter((title) => !titles.includes(title))).toEqual([]);
    const missing = titles.filter((title) => outcomes[title] === undefined);
    expect(missing.filter((title) => !isWithheld(name, title))).toEqual([]);
  }
});

test("a proxy's page shows each broken rule with its level, the bytes that passed, and the options that mend it", () => {
  const page = toProxyPage(result, rules);
  expect(page).toContain(`### ${first.test}\n\n${first.source}. Holds with \`strict on\`.`);
  expect(page).toContain(
    "client 1 → proxy\n    GET / HTTP/1.1\\r\\n\n    \\r\\n\n    (resets the connection)\n",
  );
  expect(page).toContain("| `strict on` | Refuses more. | 1                    |");
  expect(page).not.toContain(second.test);
  expect(toPage([result], [first, second])).toContain(
    "| [other](scoreboard/other.md) | 1 of 2 | 0 of 0 |",
  );
});

test("a withheld failure is not published, but counted", () => {
  const isSecret = (proxy: string, row: string): boolean => proxy === "other" && row === first.test;
  const hidden = withhold(result, isSecret);
  expect(hidden.rows).toEqual({ [second.test]: "passed" });
  expect(toProxyPage(hidden, [first, second])).toContain("Rules that are withheld: 1.");
  const page = toPage([hidden], [first, second]);
  expect(page).toContain("| [other](scoreboard/other.md), 1 withheld | 1 of 1 | 0 of 0 |");
  expect(withhold({ ...result, name: "another" }, isSecret).rows[first.test]).toEqual(failure);
});

test("the matrix has a row for each proxy, and marks broken MUSTs", () => {
  const matrix = toMatrix([result], rules);
  expect(matrix).toMatch(/>other<\/text>/);
  expect(matrix).toMatch(/fill="#b91c1c"\/>\n<text [^>]*>1<\/text>/);
});

test("the flags of the page's examples exist, and an unknown proxy is refused", () => {
  const args = ["--proxy", "nginx,haproxy", "--row", "103", "--hardening", "proxy_buffering off"];
  expect(readFlags(args, flags)?.values).toMatchObject({
    proxy: [{ name: "nginx" }, { name: "haproxy" }],
    row: "103",
  });
  expect(() => readFlags(["--proxy", "ngnix"], flags)).toThrow(/--proxy: there is no "ngnix"/);
});

test("the examples on the page find rules", () => {
  const examples = Array.from(
    toPage([result], rules).matchAll(/--row (?:"([^"]+)"|(\S+))/g),
    ([, quoted, word]) => quoted ?? word ?? "",
  );
  expect(examples).toHaveLength(2);
  for (const text of examples) {
    expect(
      rows.some(({ test: title }) => title.includes(text)),
      text,
    ).toBe(true);
  }
});
