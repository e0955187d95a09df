import { execFile } from "node:child_process";
import { existsSync, globSync, readFileSync } from "node:fs";
import { cp, mkdir, mkdtemp, readFile, rm, symlink, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { promisify } from "node:util";
import { afterAll, beforeAll, describe, expect, test } from "vitest";

const root = resolve(import.meta.dirname, "..");
const manifest = JSON.parse(readFileSync(join(root, "package.json"), "utf8")) as {
  name: string;
  version: string;
  bin: Record<string, string>;
  files: string[];
  exports: { ".": Record<string, { types: string; default: string }> };
  dependencies: Record<string, string>;
};

const execute = promisify(execFile);

describe("what npm installs", () => {
  let app: string;
  const installed = (): string => join(app, "node_modules", manifest.name);

  async function run(command: string, ...args: string[]): Promise<string> {
    const { stdout } = await execute(command, args, { cwd: app });
    return stdout.trim();
  }

  beforeAll(async () => {
    app = await mkdtemp(join(tmpdir(), "fetchway-"));
    // A copy, so that nobody else's dist is in the way.
    const copy = join(app, "copy");
    const sources = "src runtimes build.ts package.json tsconfig.json tsconfig.build.json";
    for (const part of [...sources.split(" "), ...manifest.files]) {
      // What is to be published and is not there is for a test to say; dist is built anew.
      if (part === "dist" || !existsSync(join(root, part))) continue;
      await cp(join(root, part), join(copy, part), { recursive: true });
    }
    await symlink(join(root, "node_modules"), join(copy, "node_modules"));
    const npm = { cwd: copy, env: { ...process.env, npm_config_loglevel: "error" } };
    await execute("npm", ["pack", "--pack-destination", app], npm);
    await mkdir(installed(), { recursive: true });
    const tarball = `${manifest.name}-${manifest.version}.tgz`;
    await run("tar", "-xzf", tarball, "--strip-components=1", "-C", installed());
    for (const name of [...Object.keys(manifest.dependencies), "@types", "undici-types"]) {
      await symlink(join(root, "node_modules", name), join(app, "node_modules", name));
    }
    await writeFile(join(app, "package.json"), '{ "type": "module" }');
  });

  afterAll(() => rm(app, { recursive: true }));

  test("has what it says, and no sources", () => {
    const packed = globSync("**/*", { cwd: installed() });
    expect(packed).toEqual(expect.arrayContaining(manifest.files));
    expect(
      packed.filter((file) => /(?<!\.d)\.ts$|^(test|src|runtimes|node_modules)/.test(file)),
    ).toEqual([]);
    for (const { types, default: code } of Object.values(manifest.exports["."])) {
      expect(packed).toEqual(expect.arrayContaining([types.slice(2), code.slice(2)]));
    }
  });

  test("is a few files, each of which takes its time to load", () => {
    const code = globSync("dist/**/*.js", { cwd: installed() });
    // The entries, the command, the guard, and what they share.
    const entries = Object.keys(manifest.exports["."]).length;
    expect(code.length).toBeGreaterThan(entries);
    expect(code.length).toBeLessThan(entries + 10);
  });

  test("node imports it", async () => {
    const code = `import { proxyFetch, createProxy } from "fetchway";
      console.log(typeof proxyFetch, typeof createProxy({ target: "http://a.test" }).nodeHandler);`;
    expect(await run("node", "--input-type=module", "--eval", code)).toBe("function function");
  });

  test.each(Object.entries(manifest.exports["."]))(
    "%s finds its entry",
    async (condition, paths) => {
      const code = `console.log(import.meta.resolve("fetchway"))`;
      // Node always has its own condition, which comes after those of other runtimes.
      const entry = condition === "default" ? manifest.exports["."]["node"] : paths;
      const url = await run("node", "-C", condition, "--input-type=module", "--eval", code);
      expect(url).toBe(new URL(entry?.default.slice(2) ?? "", `file://${installed()}/`).href);
    },
  );

  test.each(["nodenext", "bundler"])("its types are there with %s", async (resolution) => {
    const code = `import { createProxy, proxyFetch, ProxyError, type ProxyOptions } from "fetchway";
      const options: ProxyOptions = { timeout: 5 };
      export const response: Promise<Response> = proxyFetch(new Request("http://a.test"), "http://b.test", options);
      export const code: "dns_error" extends ProxyError["code"] ? true : false = true;
      // @ts-expect-error: there is no such option.
      createProxy({ target: "http://b.test", timeOut: 5 });`;
    await writeFile(join(app, "app.ts"), code);
    const compilerOptions = {
      strict: true,
      noEmit: true,
      target: "es2023",
      lib: ["es2024", "dom", "dom.iterable"],
      types: ["node"],
      module: resolution === "bundler" ? "esnext" : resolution,
      moduleResolution: resolution,
    };
    const config = JSON.stringify({ compilerOptions, files: ["app.ts"] });
    await writeFile(join(app, "tsconfig.json"), config);
    expect(await run("node", join(root, "node_modules/typescript/bin/tsc"))).toBe("");
  });

  test("its command runs", async () => {
    const bin = join(installed(), manifest.bin["fetchway"] ?? "");
    expect(await readFile(bin, "utf8")).toMatch(/^#!\/usr\/bin\/env node\n/);
    expect(await run("node", bin, "--version")).toContain(manifest.version);
  });
});
