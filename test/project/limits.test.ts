/** docs/limits.md, and the flags of the command on the other pages, agree with the code. */
import { readFileSync } from "node:fs";
import { expect, test } from "vitest";
import { clientLimitSchema } from "../../command/flags/commandoptions.ts";
import { flags } from "../../command/flags/flags.ts";
import { REPLAY_HELP } from "../../command/replay/replayline.ts";

const page = readFileSync(new URL("../../docs/limits.md", import.meta.url), "utf8");

/** The rows of the table of limits: flag and default. */
const rows = Array.from(
  page.matchAll(/^\| `(--[\w-]+)` +\| ([^ |]+) +\|/gm),
  ([, flag, preset]) => [flag, preset],
);

test("the table in docs/limits.md has every limit for clients, with its flag and its default", () => {
  const expected = Object.entries(clientLimitSchema).map(([option, { default: preset }]) => {
    const flag = flags.find((each) => each.scope === "server" && each.option === option);
    return [`--${flag?.name}`, String(preset)];
  });
  expect(rows).toEqual([...expected, ["--body-limit", "–"]]);
});

test.each([
  ["README.md", 3],
  ["docs/limits.md", 15],
  ["docs/command.md", 10],
  ["docs/log.md", 1],
  ["docs/quickstart.md", 1],
  ["docs/connections.md", 1],
])("every flag that %s names exists", (file, count) => {
  // These flags belong to the benches, srvx, wrangler and Deno.
  const others = ["--connections", "--no-", "--only", "--prod", "--var", "--name"].concat([
    "--compatibility-date",
    "--unstable-no-legacy-abort",
  ]);
  const ofReplay = REPLAY_HELP.match(/--[a-z]+/g) ?? [];
  const known = new Set([...flags.map(({ name }) => `--${name}`), ...ofReplay, ...others]);
  const text = readFileSync(new URL(`../../${file}`, import.meta.url), "utf8");
  const named = text.match(/(?<!-)--[a-z][\w-]+/g) ?? [];
  expect(new Set(named).size).toBeGreaterThanOrEqual(count);
  expect(named.filter((flag) => !known.has(flag))).toEqual([]);
});
