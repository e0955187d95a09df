import { execFile } from "node:child_process";
import { existsSync, globSync, readFileSync } from "node:fs";
import { cp, mkdir, mkdtemp, readFile, rm, symlink, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { promisify } from "node:util";
import { afterAll, beforeAll, describe, expect, test } from "vitest";

const root = resolve(import.meta.dirname, "..");
interface Entry {
  types: string;
  default: string;
}

const manifest = JSON.parse(readFileSync(join(root, "package.json"), "utf8")) as {
  name: string;
  version: string;
  bin: Record<string, string>;
  files: string[];
  exports: { ".": Record<string, Entry> } & Record<string, Entry>;
  dependencies: Record<string, string>;
};

const execute = promisify(execFile);

describe("the installed package", () => {
  let app: string;
  const installed = (): string => join(app, "node_modules", manifest.name);

  async function run(command: string, ...args: string[]): Promise<string> {
    const { stdout } = await execute(command, args, { cwd: app });
    return stdout.trim();
  }

  beforeAll(async () => {
    app = await mkdtemp(join(tmpdir(), "fetchway-"));
    // Build in a copy, so that the build does not change the dist folder of the project.
    const copy = join(app, "copy");
    const sources = "src runtimes build.ts package.json tsconfig.json tsconfig.build.json";
    for (const part of [...sources.split(" "), ...manifest.files]) {
      // A test reports missing files, and dist is built in the copy.
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

  test("has the files of its exports, and no sources", () => {
    const packed = globSync("**/*", { cwd: installed() });
    expect(packed).toEqual(expect.arrayContaining(manifest.files));
    expect(
      packed.filter((file) => /(?<!\.d)\.ts$|^(test|src|runtimes|node_modules)/.test(file)),
    ).toEqual([]);
    for (const { types, default: code } of Object.values(manifest.exports["."])) {
      expect(packed).toEqual(expect.arrayContaining([types.slice(2), code.slice(2)]));
    }
  });

  test("consists of few files, so that it loads quickly", () => {
    const code = globSync("dist/**/*.js", { cwd: installed() });
    // The files are the entries, their subpaths, the command, the guard, and the chunks that they share. Two of the
    // chunks are the parts for HTTP/2 that are loaded when they are needed, one is the trailer fields that these parts
    // share with the core, and one the handshakes that Bun, Deno and Workers check.
    const entries = Object.keys(manifest.exports["."]).length + 2;
    expect(code.length).toBeGreaterThan(entries);
    expect(code.length).toBeLessThan(entries + 23);
  });

  test("can be imported by Node", async () => {
    const code = `import { proxyFetch, createProxy } from "fetchway";
      console.log(typeof proxyFetch, typeof createProxy({ target: "http://a.test" }).nodeHandler);`;
    expect(await run("node", "--input-type=module", "--eval", code)).toBe("function function");
  });

  test.each(Object.entries(manifest.exports["."]))(
    "%s finds its entry",
    async (condition, paths) => {
      const code = `console.log(import.meta.resolve("fetchway"))`;
      // Node also applies its own condition "node". In `exports` it comes after those of other runtimes and before
      // "default", so that "default" is never selected here.
      const entry = condition === "default" ? manifest.exports["."]["node"] : paths;
      const url = await run("node", "-C", condition, "--input-type=module", "--eval", code);
      expect(url).toBe(new URL(entry?.default.slice(2) ?? "", `file://${installed()}/`).href);
    },
  );

  test.each(["node", "bun", "deno", "workerd", "fetch"])(
    "fetchway/%s is that entry",
    async (name) => {
      const { types, default: code } = manifest.exports[`./${name}`] as Entry;
      const packed = globSync("dist/**/*", { cwd: installed() });
      expect(packed).toEqual(expect.arrayContaining([types.slice(2), code.slice(2)]));
      // The subpath has no conditions, so it is the same for every runtime.
      for (const condition of ["node", "bun", "workerd"]) {
        const print = `console.log(import.meta.resolve("fetchway/${name}"))`;
        const url = await run("node", "-C", condition, "--input-type=module", "--eval", print);
        expect(url).toBe(new URL(code.slice(2), `file://${installed()}/`).href);
      }
    },
  );

  test("fetchway/node and fetchway/fetch run on Node", async () => {
    const code = `import { createProxy } from "fetchway/node";
      import { createTransport } from "fetchway/fetch";
      const proxy = createProxy({ target: "http://a.test", transport: createTransport() });
      console.log(typeof proxy.nodeHandler, createTransport().name);`;
    expect(await run("node", "--input-type=module", "--eval", code)).toBe("function fetch");
  });

  /** TypeScript's options for finding modules, each with whether "fetchway" is then the Node entry. */
  const resolutions: Record<string, [options: object, isNode: boolean]> = {
    node16: [{ module: "node16", moduleResolution: "node16" }, true],
    nodenext: [{ module: "nodenext", moduleResolution: "nodenext" }, true],
    bundler: [{ module: "esnext", moduleResolution: "bundler" }, false],
    preserve: [{ module: "preserve" }, false],
    "bundler with the condition": [
      { module: "esnext", moduleResolution: "bundler", customConditions: ["node"] },
      true,
    ],
    "preserve with the condition": [{ module: "preserve", customConditions: ["node"] }, true],
  };

  const files: Record<string, string> = {
    "types.ts": `import { createProxy, proxyFetch, ProxyError, type ProxyOptions } from "fetchway";
      const options: ProxyOptions = { timeout: 5 };
      export const response: Promise<Response> = proxyFetch(new Request("http://a.test"), "http://b.test", options);
      export const code: "dns_error" extends ProxyError["code"] ? true : false = true;
      // @ts-expect-error: there is no such option.
      createProxy({ target: "http://b.test", timeOut: 5 });`,
    "entries.ts": `import { createServer } from "node:http";
      import { createProxy, type NodeHandler } from "fetchway/node";
      import { createProxy as createBun } from "fetchway/bun";
      import { createTransport as ofDeno } from "fetchway/deno";
      import { createTransport as ofWorkers } from "fetchway/workerd";
      import { createTransport as ofFetch, type Transport } from "fetchway/fetch";
      const target = "http://b.test";
      export const handler: NodeHandler = createProxy({ target }).nodeHandler;
      createServer(createProxy({ target, transport: ofFetch() }).nodeHandler);
      export const size: number = createBun({ target }).maxRequestBodySize;
      export const transports: Transport[] = [ofDeno(), ofWorkers(), ofFetch()];
      // @ts-expect-error: only the entry of Node has it.
      void createBun({ target }).nodeHandler;`,
  };

  test.each(Object.entries(resolutions))("has its types with %s", async (_, [options, isNode]) => {
    const main = `import { createProxy } from "fetchway";
      // ${isNode ? "The entry of Node." : "@ts-expect-error: the entry of no runtime."}
      void createProxy({ target: "http://b.test" }).nodeHandler;`;
    for (const [file, code] of Object.entries({ ...files, "main.ts": main })) {
      await writeFile(join(app, file), code);
    }
    const compilerOptions = {
      strict: true,
      noEmit: true,
      target: "es2023",
      lib: ["es2024", "dom", "dom.iterable"],
      types: ["node"],
      ...options,
    };
    const config = JSON.stringify({ compilerOptions, files: [...Object.keys(files), "main.ts"] });
    await writeFile(join(app, "tsconfig.json"), config);
    expect(await run("node", join(root, "node_modules/typescript/bin/tsc"))).toBe("");
  });

  test("has a command that runs", async () => {
    const bin = join(installed(), manifest.bin["fetchway"] ?? "");
    expect(await readFile(bin, "utf8")).toMatch(/^#!\/usr\/bin\/env node\n/);
    expect(await run("node", bin, "--version")).toContain(manifest.version);
  });
});
