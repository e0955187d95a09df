/** How arguments are read: short forms of targets, the forms of flags, and flags of other commands. */
import { describe, expect, test } from "vitest";
import { flags } from "../../command/flags/flags.ts";
import { parse } from "../../command/flags/parse.ts";
import { peerFlags } from "../../command/flags/peerflags.ts";
import { expandTarget } from "../../command/flags/shorttarget.ts";

test.each([
  ["4000", "http://localhost:4000"],
  [":4000", "http://localhost:4000"],
  [":4000/base?x", "http://localhost:4000/base?x"],
  ["localhost:4000", "http://localhost:4000"],
  ["localhost:4000/base", "http://localhost:4000/base"],
  ["10.0.0.1:80", "http://10.0.0.1:80"],
  ["[::1]:80", "http://[::1]:80"],
  ["a-b.example:443/x", "https://a-b.example:443/x"],
  ["http://a", "http://a"],
  ["unix:/x", "unix:/x"],
  ["unix:\\\\.\\pipe\\app", "unix:\\\\.\\pipe\\app"],
  ["0", "0"],
  ["70000", "70000"],
  ["localhost", "localhost"],
  ["ftp://a:5", "ftp://a:5"],
  ["user:pass", "user:pass"],
])("the argument %s becomes the target %s", (text, target) => {
  expect(expandTarget(text)).toBe(target);
  expect(parse([text]).target).toBe(target);
});

describe("flags", () => {
  test.each([
    ["4000 --port 5", { port: 5 }],
    ["4000 --port=5", { port: 5 }],
    ["4000 -p 5", { port: 5 }],
    ["4000 -p5", { port: 5 }],
    ["4000 -p=5", { port: 5 }],
    ["-p 5 -- 4000", { port: 5 }],
    ["--stats 4000", { stats: true }],
    ["--stats true 4000", { stats: true }],
    ["--stats false 4000", { stats: false }],
    ["--no-stats 4000", { stats: false }],
  ])("%s: the flag gets its value, and 4000 stays the target", (line, server) => {
    const parsed = parse(line.split(" "));
    expect(parsed.problems).toEqual([]);
    expect(parsed.given.server).toEqual(server);
    expect(parsed.target).toBe("http://localhost:4000");
  });

  test.each([
    ["-h", true],
    ["--help", true],
    ["--help all", "all"],
    ["--help=all", "all"],
    ["-h all", "all"],
  ])("%s asks for the help", (line, help) => {
    const parsed = parse(line.split(" "));
    expect(parsed).toMatchObject({ problems: [], target: undefined });
    expect(parsed.given.line.help).toBe(help);
  });

  test("a flag does not take the next flag as its value", () => {
    const { given, problems } = parse(["--via", "--port", "5", "--host", "-p", "6", "-k"]);
    expect(problems).toEqual([
      "--via: a value is missing, write --via <name>",
      "--host: a value is missing, write --host <address>",
      "there is no -k: use --insecure",
    ]);
    expect(given.server).toEqual({ port: 6 });
  });
});

describe("flags of other commands", () => {
  const spellings = new Set(flags.map(({ name }) => `--${name}`));
  for (const { name, negatable } of flags) if (negatable) spellings.add(`--no-${name}`);

  test("are refused, and the advice in the message names flags of this command", () => {
    expect(peerFlags.size).toBeGreaterThan(100);
    for (const [name, { advice }] of peerFlags) {
      expect(spellings.has(name), name).toBe(false);
      expect(name).toMatch(/^(?:-\w|--\w[\w-]+)$/);
      for (const [ours] of advice.matchAll(/--[\w-]+/g)) {
        expect([...spellings], `${name}: ${advice}`).toContain(ours);
      }
    }
  });

  test("are refused together with their value, so that it is not read as the target", () => {
    const { target, problems } = parse(["--bind", "0.0.0.0", "--silent", "4000"]);
    expect(target).toBe("http://localhost:4000");
    expect(problems).toEqual([
      "there is no --bind: use --host",
      "there is no --silent: use --log off",
    ]);
  });
});
