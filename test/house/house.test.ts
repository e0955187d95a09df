/** Tests of the names of files and exports, of the lists in CONTRIBUTING.md, and of code that must work on Windows. */
import { spawnSync } from "node:child_process";
import { copyFileSync, globSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { basename, dirname, join } from "node:path";
import { describe, expect, test } from "vitest";

const root = join(import.meta.dirname, "../..");
const files = globSync("{src,runtimes,integrations,command}/**/*.ts", { cwd: root });

/** Groups values by a key, and returns the groups with more than one value. */
function findRepeated<T>(values: readonly T[], keyOf: (value: T) => string): Record<string, T[]> {
  const groups = Object.groupBy(values, keyOf) as Record<string, T[]>;
  return Object.fromEntries(Object.entries(groups).filter(([, group]) => group.length > 1));
}

/** Returns the runtime to which a file belongs: `runtimes/bun.ts` and `runtimes/bun/respond.ts` belong to Bun. */
function runtimeOf(file: string): string | undefined {
  return /^runtimes\/(bun|deno|fetch|node|undici|workerd)\b/.exec(file)?.[1];
}

/** Whether each of these files belongs to a different runtime. */
function haveOwnRuntimes(group: readonly string[]): boolean {
  const runtimes = group.map(runtimeOf);
  return !runtimes.includes(undefined) && new Set(runtimes).size === runtimes.length;
}

test("no two files share a name unless each belongs to a different runtime", () => {
  expect(files.length).toBeGreaterThan(50);
  const repeated = findRepeated(files, (file) => basename(file));
  expect(Object.values(repeated).filter((group) => !haveOwnRuntimes(group))).toEqual([]);
});

/** A type, class, constant or function at the top of a module. */
interface Definition {
  readonly file: string;
  readonly name: string;
  readonly isFunction: boolean;
  readonly isExported: boolean;
}

const definitions = files.flatMap((file): Definition[] => {
  const source = readFileSync(join(root, file), "utf8");
  const found = source.matchAll(
    /^(export )?(?:abstract )?(?:async )?(function\*?|const|class|interface|type) (\w+)/gm,
  );
  // A function with overloads is found once for each overload.
  const all = Array.from(found, ([, exported, kind = "", name = ""]) => ({
    file,
    name,
    isFunction: kind.startsWith("function"),
    isExported: exported !== undefined,
  }));
  return all.filter(({ name }, at) => all.findIndex((each) => each.name === name) === at);
});

/** Returns the names that several definitions share, each with its files, unless each file belongs to a different runtime. */
function findCollisions(among: readonly Definition[]): Record<string, string[]> {
  const repeated = Object.entries(findRepeated(among, ({ name }) => name));
  const wrong = repeated
    .map(([name, group]) => [name, group.map(({ file }) => file)] as const)
    .filter(([, group]) => !haveOwnRuntimes(group));
  return Object.fromEntries(wrong);
}

test("no two exports share a name unless each belongs to a different runtime", () => {
  expect(definitions.length).toBeGreaterThan(1000);
  // The entries that belong to no runtime export the same functions as those of the runtimes.
  const entries = new Set(["runtimes/default.ts", "runtimes/server.ts"]);
  expect(
    findCollisions(definitions.filter(({ file, isExported }) => isExported && !entries.has(file))),
  ).toEqual({});
});

test("no type, class or constant has the name of an export of another file", () => {
  const exported = new Set(definitions.filter((each) => each.isExported).map(({ name }) => name));
  // A local function, or a variable in lower case, may have the name of an export: its readers see its definition in the file.
  const named = definitions.filter(
    ({ name, isFunction }) => exported.has(name) && !isFunction && /^[A-Z]/.test(name),
  );
  expect(findCollisions(named)).toEqual({});
});

test("no file defines a constant with the name and value of an exported constant of another file", () => {
  const constants = files.flatMap((file) => {
    const source = readFileSync(join(root, file), "utf8");
    const found = source.matchAll(/^(export )?const ([A-Z][A-Z\d_]+)(?:: [^=\n]+)? = (.+);$/gm);
    return Array.from(found, ([, exported, name, value]) => ({
      file,
      isExported: exported !== undefined,
      text: `${name} = ${value}`,
    }));
  });
  expect(constants.length).toBeGreaterThan(200);
  const repeated = Object.entries(findRepeated(constants, ({ text }) => text));
  const wrong = repeated
    .filter(([, group]) => group.some(({ isExported }) => isExported))
    .map(([text, group]) => [text, group.map(({ file }) => file)]);
  expect(Object.fromEntries(wrong)).toEqual({});
});

test("the folders in CONTRIBUTING.md's map exist, and the map contains each folder of sources", () => {
  const text = readFileSync(join(root, "CONTRIBUTING.md"), "utf8");
  const named = Array.from(text.matchAll(/^\| `([\w/]+)\/`/gm), ([, folder = ""]) => folder);
  const folders = new Set(files.map((file) => dirname(file)));
  // A runtime's folder needs no row of its own, because the row of `runtimes/` covers it.
  const own = [...folders].filter((folder) => runtimeOf(folder) === undefined);
  expect(own.filter((folder) => !named.includes(folder))).toEqual([]);
  for (const folder of named) expect(globSync(`${folder}/*`, { cwd: root })).not.toEqual([]);
});

test("the table of tricks in CONTRIBUTING.md lists each file that depends on undocumented behaviour", () => {
  const text = readFileSync(join(root, "CONTRIBUTING.md"), "utf8");
  const named = Array.from(text.matchAll(/^\| `([\w/]+\.ts)` +\|/gm), ([, file = ""]) => file);
  const tricks = files.filter((file) =>
    /^ +\* - Rests on: /m.test(readFileSync(join(root, file), "utf8")),
  );
  expect(tricks.length).toBeGreaterThan(15);
  expect(named.toSorted()).toEqual(tricks.toSorted());
  // Every file in a folder named `internals` depends on undocumented behaviour.
  expect(tricks).toEqual(
    expect.arrayContaining(files.filter((file) => file.includes("/internals/"))),
  );
});

describe("for Windows", () => {
  test("a clone with core.autocrlf has the bytes of the repository", () => {
    const folder = mkdtempSync(join(tmpdir(), "fetchway-clone-"));
    try {
      const [origin, clone] = [join(folder, "origin"), join(folder, "clone")];
      const git = (...args: string[]): void => {
        const { status, stderr } = spawnSync("git", args, { encoding: "utf8" });
        expect(status, stderr).toBe(0);
      };
      git("init", "--quiet", origin);
      copyFileSync(join(root, ".gitattributes"), join(origin, ".gitattributes"));
      writeFileSync(join(origin, "lines.ts"), "one\ntwo\n");
      git("-C", origin, "add", ".");
      const author = ["-c", "user.name=test", "-c", "user.email=test@example.com"];
      git("-C", origin, ...author, "commit", "--quiet", "--message", "lines");
      git("-c", "core.autocrlf=true", "clone", "--quiet", origin, clone);
      expect(readFileSync(join(clone, "lines.ts"), "utf8")).toBe("one\ntwo\n");
    } finally {
      rmSync(folder, { recursive: true });
    }
  });

  test("no code uses `pathname` of a URL as the path of a file", () => {
    // The `pathname` of file:///C:/a%20b is /C:/a%20b, but the path of the file is C:\a b.
    const all = globSync("{src,runtimes,integrations,command,test,bench}/**/*.ts", { cwd: root });
    const wrong = all.filter((file) =>
      /import\.meta\.url\)\.pathname/.test(readFileSync(join(root, file), "utf8")),
    );
    expect(wrong).toEqual([]);
  });

  test("the npm scripts use only syntax that sh and cmd.exe share", () => {
    for (const manifest of ["package.json", "site/package.json"]) {
      const { scripts } = JSON.parse(readFileSync(join(root, manifest), "utf8")) as {
        scripts: Record<string, string>;
      };
      // Variables, single quotes and `;` differ between the two shells. Pipes and redirections are not needed.
      expect(Object.values(scripts).filter((line) => /[$'`;|<>]|^\w+=/.test(line))).toEqual([]);
    }
  });
});
