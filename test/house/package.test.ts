import { existsSync, globSync, readFileSync } from "node:fs";
import { dirname, join, resolve } from "node:path";
import { describe, expect, test } from "vitest";
import { OLDEST } from "../../runtimes/sockets/versions.ts";

const root = resolve(import.meta.dirname, "../..");
const read = (path: string): string => readFileSync(join(root, path), "utf8");
const json = (path: string): unknown => JSON.parse(read(path));

interface Entry {
  types: string;
  default: string;
}

interface Manifest {
  name: string;
  version: string;
  imports: { "#fetchway": Record<string, string> } & Record<`#fetchway/${string}`, string>;
  exports: { ".": Record<string, Entry> } & Record<string, Entry>;
  engines: { node: string };
  dependencies: Record<string, string>;
  devDependencies: Record<string, string>;
  peerDependencies: Record<string, string>;
  peerDependenciesMeta: Record<string, { optional: boolean }>;
  optionalDependencies?: Record<string, string>;
}
const manifest = json("package.json") as Manifest;
/** The entries that integrate a package which users must install themselves. */
const INTEGRATIONS = ["undici"];
const sources = globSync("{src,runtimes,integrations,command}/**/*.ts", { cwd: root });

describe("package.json", () => {
  test("`exports` lists the built files of `imports`, with the types first", () => {
    const built = Object.entries(manifest.imports["#fetchway"]).map(([condition, path]) => {
      const base = path.replace("./", "./dist/").replace(/\.ts$/, "");
      return [condition, Object.entries({ types: `${base}.d.ts`, default: `${base}.js` })];
    });
    const exported = Object.entries(manifest.exports["."]).map(([condition, paths]) => [
      condition,
      Object.entries(paths),
    ]);
    expect(exported).toEqual(built);
  });

  test("each entry has its own subpath, with the name of its file and without conditions", () => {
    const { default: byDefault, ...entries } = manifest.exports["."];
    const { ".": _main, ...others } = manifest.exports;
    expect(Object.keys(entries)).toHaveLength(4);
    // Code that names no runtime gets `fetchway/fetch`, with the types of Node's proxies.
    expect(byDefault?.default).toBe("./dist/runtimes/default.js");
    // These are not entries: they are a server that is ready to run, the types of a transport and of the command's
    // config file, `balance`, `mirrorTo`, the options as data, functions that read requests, explanations of errors,
    // interceptors, a plugin for Vite, and a handler for rules of h3.
    const {
      "./package.json": _,
      "./server": __________,
      "./transport": __,
      "./config": ___,
      "./upstreams": ____,
      "./mirror": _____________,
      "./options": _______,
      "./requests": ________,
      "./errors": ____________,
      "./bodies": _________,
      "./streams": ___________,
      "./vite": _____,
      "./rules": ______,
      ...subpaths
    } = others;
    const further = ["fetch", ...INTEGRATIONS].map((name) => ({
      types: `./dist/runtimes/${name}.d.ts`,
      default: `./dist/runtimes/${name}.js`,
    }));
    const named = [...Object.values(entries), ...further].map((paths) => [
      `./${/(\w+)\.js$/.exec(paths.default)?.[1]}`,
      Object.entries(paths),
    ]);
    expect(Object.entries(subpaths).map(([path, paths]) => [path, Object.entries(paths)])).toEqual(
      named,
    );
  });

  test("the paths below `#fetchway` lead to the sources of the files in `exports`", () => {
    const { "#fetchway": _, ...paths } = manifest.imports;
    for (const [path, source] of Object.entries(paths)) {
      const built = manifest.exports[path.replace("#fetchway", ".")]?.default;
      expect(built, path).toBe(source.replace("./", "./dist/").replace(/\.ts$/, ".js"));
    }
  });

  test("dependencies have exact versions, and each is used", () => {
    const { dependencies, devDependencies, peerDependencies, peerDependenciesMeta } = manifest;
    for (const version of Object.values({ ...dependencies, ...devDependencies })) {
      expect(version).toMatch(/^\d+\.\d+\.\d+(-[\w.]+)?$/);
    }
    // Users of an integration install its package themselves. The version that is tested here must be in the allowed
    // range.
    expect(Object.keys(peerDependencies)).toEqual(INTEGRATIONS);
    for (const [name, range] of Object.entries(peerDependencies)) {
      expect(peerDependenciesMeta[name]).toEqual({ optional: true });
      expect(range).toBe(`^${devDependencies[name]?.split(".")[0]}.0.0`);
    }
    const imported = sources
      .filter((file) => !INTEGRATIONS.some((name) => file.startsWith(`runtimes/${name}`)))
      .flatMap((file) => importsOf(file))
      .filter((path) => /^[a-z@]/.test(path));
    const packages = imported.flatMap((path) => /^(?!node:)(?:@[^/]+\/)?[^/]+/.exec(path) ?? []);
    expect(new Set(packages)).toEqual(new Set(Object.keys(dependencies)));
  });

  test("`engines` matches the check at run time, README and docs/runtimes.md", () => {
    expect(manifest.engines.node).toBe(`>=${OLDEST.Node}`);
    for (const page of ["README.md", "docs/runtimes.md"]) {
      for (const [runtime, oldest] of Object.entries(OLDEST)) {
        const named = read(page).match(new RegExp(`(?<=\\b${runtime} )\\d+\\.\\d+`, "g"));
        expect(new Set(named), runtime).toEqual(new Set([/^\d+\.\d+/.exec(oldest)?.[0]]));
      }
    }
  });

  test("deno.json agrees with package.json", () => {
    const deno = json("deno.json") as {
      name: string;
      version: string;
      exports: Record<string, string>;
      imports: Record<string, string>;
    };
    const proxy = manifest.imports["#fetchway"];
    expect(deno.name).toBe(`@fetchway/${manifest.name}`);
    expect(deno.version).toBe(manifest.version);
    const { ".": main, ...subpaths } = deno.exports;
    expect(main).toBe(proxy["deno"]);
    const { "#fetchway": own, ...paths } = manifest.imports;
    expect(deno.imports).toEqual({ "#fetchway": own["deno"], ...paths });
    const { ".": _, "./package.json": __, ...exported } = manifest.exports;
    const built = Object.entries(exported).map(([path, { default: code }]) => [
      path,
      code.replace("./dist/", "./").replace(/\.js$/, ".ts"),
    ]);
    expect(Object.entries(subpaths)).toEqual(built);
  });

  test("package-lock.json is complete for `npm ci`, and contains no URL of a registry", () => {
    const { packages } = json("package-lock.json") as {
      packages: Record<string, { resolved?: string }>;
    };
    // A package for another platform is missing if the registry did not have it when the lock was made.
    const missing = Object.keys(packages)
      .filter((path) => path !== "" && existsSync(join(root, path)))
      .flatMap((path) => {
        const { optionalDependencies = {} } = json(`${path}/package.json`) as Manifest;
        const locked = (name: string): boolean =>
          `node_modules/${name}` in packages || `${path}/node_modules/${name}` in packages;
        return Object.keys(optionalDependencies).filter((name) => !locked(name));
      });
    expect(missing).toEqual([]);
    expect(Object.values(packages).filter(({ resolved }) => resolved !== undefined)).toEqual([]);
  });

  test("CHANGELOG.md begins with the version in package.json", () => {
    expect(/^## (\S+)/m.exec(read("CHANGELOG.md"))?.[1]).toBe(manifest.version);
  });
});

/** Returns the import specifiers of a source file. */
function importsOf(file: string): string[] {
  const statements = read(file).matchAll(/^(?:import|export)\b(?:[^"';]*?\bfrom)?\s*"([^"]+)"/gm);
  return Array.from(statements, ([, path]) => path as string);
}

describe("sources", () => {
  test("sources of the command and of the integrations import Fetchway only by its name", () => {
    const apps = sources.filter((file) => /^(?:command|integrations)\//.test(file));
    expect(apps.length).toBeGreaterThan(50);
    for (const file of apps) {
      for (const path of importsOf(file)) {
        // The build replaces the values that are read from package.json, so the published code does not import it.
        if (path === "../../package.json") continue;
        if (path.startsWith("#")) expect(Object.keys(manifest.imports), file).toContain(path);
        else if (path.startsWith(".")) {
          expect(join(dirname(file), path).split("/")[0], file).toBe(file.split("/")[0]);
        }
      }
    }
  });

  test("sources of the core import only sources of the core", () => {
    for (const file of sources.filter((each) => each.startsWith("src/"))) {
      for (const path of importsOf(file)) {
        expect(path, file).toMatch(/^\.\.?\/[\w/-]+\.ts$/);
        expect(join(dirname(file), path), file).toMatch(/^src\//);
      }
    }
  });

  test("imports of values form no cycle", () => {
    const graph = new Map(sources.map((file) => [file, valueImportsOf(file)]));
    expect(graph.get("src/pipeline/pipeline.ts")).toContain("src/transport/scope.ts");
    expect(cycleIn(graph)).toBeUndefined();
  });
});

/** Returns the project's files that a source file imports at run time, so without types. */
function valueImportsOf(file: string): string[] {
  const code = read(file).replaceAll(/^(import|export) type\b[^;]*;/gm, "");
  return Array.from(code.matchAll(/\bfrom "(\.[^"]+)"|^import "(\.[^"]+)"/gm), ([, from, bare]) =>
    join(dirname(file), from ?? bare ?? ""),
  );
}

/** Returns the first cycle of imports. */
function cycleIn(graph: Map<string, string[]>): string[] | undefined {
  const done = new Set<string>();
  const visit = (file: string, way: string[]): string[] | undefined => {
    if (way.includes(file)) return [...way.slice(way.indexOf(file)), file];
    if (done.has(file)) return undefined;
    for (const next of graph.get(file) ?? []) {
      const cycle = visit(next, [...way, file]);
      if (cycle) return cycle;
    }
    done.add(file);
    return undefined;
  };
  for (const file of graph.keys()) {
    const cycle = visit(file, []);
    if (cycle) return cycle;
  }
  return undefined;
}
