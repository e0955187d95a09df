/** How a release is made: the workflows, and the changelog that changesets write. */
import { execFileSync } from "node:child_process";
import {
  cpSync,
  existsSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { expect, onTestFinished, test } from "vitest";
import { parse } from "yaml";

const root = join(import.meta.dirname, "../..");
const { scripts, version } = JSON.parse(readFileSync(join(root, "package.json"), "utf8")) as {
  scripts: Record<string, string>;
  version: string;
};

interface Workflow {
  readonly jobs: Record<string, { readonly steps: readonly { readonly run?: string }[] }>;
}

const workflows = readdirSync(join(root, ".github/workflows"));

test.each(workflows)("each command of the workflow %s exists", (name) => {
  const { jobs } = parse(readFileSync(join(root, ".github/workflows", name), "utf8")) as Workflow;
  const commands = Object.values(jobs).flatMap(({ steps }) =>
    steps.flatMap(({ run }) => run ?? []),
  );
  expect(commands.length).toBeGreaterThan(0);
  for (const command of commands) expectExists(command);
});

test("each command of RELEASING.md exists", () => {
  const commands = [
    ...readFileSync(join(root, "RELEASING.md"), "utf8").matchAll(/`(npm run [^`]+)`/g),
  ];
  expect(commands.length).toBeGreaterThan(2);
  for (const [, command] of commands) expectExists(command as string);
});

function expectExists(command: string): void {
  const script = /^npm run (\S+)/.exec(command)?.[1];
  if (script !== undefined) expect(scripts, command).toHaveProperty([script]);
  const file = /^\.\S+/.exec(command)?.[0];
  if (file !== undefined) expect(existsSync(join(root, file)), command).toBe(true);
}

test.each(readdirSync(join(root, ".github/ISSUE_TEMPLATE")))(
  "the issue template %s is YAML",
  (name) => {
    expect(parse(readFileSync(join(root, ".github/ISSUE_TEMPLATE", name), "utf8"))).toBeTypeOf(
      "object",
    );
  },
);

test("changesets put the next version at the top of CHANGELOG.md, and do not change the rest", () => {
  const folder = mkdtempSync(join(tmpdir(), "fetchway-"));
  onTestFinished(() => rmSync(folder, { recursive: true }));
  for (const name of ["package.json", "CHANGELOG.md", ".changeset", "package-lock.json"]) {
    cpSync(join(root, name), join(folder, name), { recursive: true });
  }
  const change = '---\n"fetchway": minor\n---\n\n`proxyFetch` is faster.\n';
  writeFileSync(join(folder, ".changeset/one.md"), change);
  const before = readFileSync(join(root, "CHANGELOG.md"), "utf8");
  execFileSync(process.execPath, [join(root, "node_modules/@changesets/cli/bin.js"), "version"], {
    cwd: folder,
  });
  const next = version.replace(/\d+\.\d+$/, (rest) => `${Number.parseInt(rest, 10) + 1}.0`);
  const [title, ...rest] = before.split("\n\n");
  const added = `## ${next}\n\n### Minor Changes\n\n- \`proxyFetch\` is faster.`;
  expect(readFileSync(join(folder, "CHANGELOG.md"), "utf8")).toBe(
    [title, added, ...rest].join("\n\n"),
  );
});
