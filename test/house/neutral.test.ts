import { globSync, readFileSync } from "node:fs";
import { builtinModules } from "node:module";
import { join } from "node:path";
import { build, type Plugin } from "esbuild";
import { defineEnv } from "unenv";
import { describe, expect, test } from "vitest";

const root = join(import.meta.dirname, "../..");
const { imports } = JSON.parse(readFileSync(join(root, "package.json"), "utf8")) as {
  imports: { "#fetchway": Record<string, string> };
};
const entries = imports["#fetchway"];

/** The names of Node's built-in modules: those of this Node, and those that bundlers for other runtimes recognize. */
const BUILTINS = new Set([
  ...builtinModules.flatMap((name) => [name, `node:${name}`]),
  ...Object.keys(defineEnv().env.alias),
]);
const FREE = "process Buffer global require setImmediate clearImmediate __dirname".split(" ");

interface Bundle {
  /** The source files in the bundle, relative to the root of the project. */
  files: string[];
  /** The packages and built-in modules that the bundle imports. */
  packages: string[];
  /** The names of Node's globals that the bundle uses. */
  free: string[];
}

/** Bundles code for a runtime other than Node. Packages are not bundled, but listed in `packages`. */
async function bundle(code: string, conditions: string[] = []): Promise<Bundle> {
  const packages = new Set<string>();
  const note: Plugin = {
    name: "note-packages",
    setup(bundler) {
      bundler.onResolve({ filter: /^[^./#]/ }, ({ path }) => {
        packages.add(path);
        return { path, external: true };
      });
    },
  };
  const { metafile, outputFiles } = await build({
    stdin: { contents: code, resolveDir: root, loader: "ts" },
    absWorkingDir: root,
    bundle: true,
    write: false,
    metafile: true,
    logLevel: "silent",
    format: "esm",
    platform: "neutral",
    conditions,
    // esbuild replaces a name only where it means a global. So the bundle uses a global if it contains the replacement.
    define: Object.fromEntries(FREE.map((name) => [name, `free_${name}`])),
    plugins: [note],
  });
  const text = outputFiles[0]?.text ?? "";
  return {
    files: Object.keys(metafile.inputs),
    packages: [...packages],
    free: FREE.filter((name) => new RegExp(`\\bfree_${name}\\b`).test(text)),
  };
}

const everythingOf = (path: string): string =>
  `import * as all from "${path}"; globalThis.all = all;`;

test("the check of a bundle finds imports of packages and uses of Node's globals", async () => {
  const seen = await bundle(`
    import "node:fs"; import "tls"; import "undici";
    console.log(process.env, typeof Buffer, ((global) => global)(1), globalThis.setImmediate);
  `);
  expect(seen).toMatchObject({
    packages: ["node:fs", "tls", "undici"],
    free: ["process", "Buffer"],
  });
  expect(seen.packages.filter((name) => BUILTINS.has(name))).toEqual(["node:fs", "tls"]);
});

describe("code that must not depend on Node", () => {
  test.each(["./src/index.ts", "./src/proxy.ts"])(
    "%s imports no package and uses no global of Node",
    async (path) => {
      const { files, packages, free } = await bundle(everythingOf(path));
      expect(files.filter((file) => !file.startsWith("src/") && file !== "<stdin>")).toEqual([]);
      expect({ packages, free }).toEqual({ packages: [], free: [] });
    },
  );

  const client = globSync("src/http1/*.ts", { cwd: root });
  test("the HTTP/1.1 client imports no package and uses no global of Node", async () => {
    const all = client.map((file, i) => `export * as file${i} from "./${file}";`).join("");
    const { files, packages, free } = await bundle(all);
    expect(files.filter((file) => !file.startsWith("src/") && file !== "<stdin>")).toEqual([]);
    expect(files).toContain("src/http1/client.ts");
    expect({ packages, free }).toEqual({ packages: [], free: [] });
  });

  test.each(client)("%s reads nothing from the global object", (file) => {
    const code = readFileSync(join(root, file), "utf8");
    expect(code).not.toMatch(/\bglobalThis\b|getBuiltinModule|\bNodeJS\.|["']node:/);
  });

  const others = Object.keys(entries).filter((condition) => condition !== "node");
  test.each(others)("the %s entry imports nothing of Node", async (condition) => {
    const { packages, free } = await bundle(everythingOf("#fetchway"), [condition]);
    expect(packages.filter((name) => BUILTINS.has(name))).toEqual([]);
    expect({ packages, free }).toEqual({ packages: [], free: [] });
  });

  test("the Worker of wrangler.toml imports nothing of Node", async () => {
    const main = /^main = "(.+)"$/m.exec(readFileSync(join(root, "wrangler.toml"), "utf8"))?.[1];
    const { packages, free } = await bundle(everythingOf(`./${main}`), ["workerd"]);
    expect({ packages, free }).toEqual({ packages: [], free: [] });
  });
});

describe("export conditions", () => {
  test.each(Object.entries(entries))(
    "the condition %s selects the entry %s",
    async (condition, path) => {
      const conditions = condition === "default" ? [] : [condition];
      const { files } = await bundle(everythingOf("#fetchway"), conditions);
      const taken = Object.values(entries).filter((entry) => files.includes(entry.slice(2)));
      expect(taken).toEqual([path]);
    },
  );

  test("the condition `node` comes last before `default`, because Workers, Deno and Bun may match `node` as well", () => {
    expect(Object.keys(entries)).toEqual(["workerd", "deno", "bun", "node", "default"]);
  });
});

test("the entry fetchway/undici imports no package but undici", async () => {
  const { packages } = await bundle('import "./runtimes/undici.ts"');
  expect(packages.filter((name) => !BUILTINS.has(name))).toEqual(["undici"]);
});

test("the Node entry imports no package", async () => {
  expect((await bundle('import "./runtimes/node.ts"')).packages).toEqual([]);
});
