import { execFile, spawn } from "node:child_process";
import { existsSync, globSync, readFileSync } from "node:fs";
import { cp, mkdir, mkdtemp, readFile, rm, symlink, writeFile } from "node:fs/promises";
import { createRequire } from "node:module";
import { tmpdir } from "node:os";
import { basename, dirname, join, resolve } from "node:path";
import { promisify } from "node:util";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { type Program, startProgram } from "../helpers/program.ts";
import { findPort } from "../helpers/serve.ts";
import { Upstream } from "../helpers/upstream.ts";
import { pause, until } from "../helpers/wait.ts";

const root = resolve(import.meta.dirname, "../..");
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
  devDependencies: Record<string, string>;
  peerDependencies: Record<string, string>;
};

const execute = promisify(execFile);

describe("the installed package", () => {
  let app: string;
  const installed = (): string => join(app, "node_modules", manifest.name);

  async function run(command: string, ...args: string[]): Promise<string> {
    const { stdout } = await execute(command, args, { cwd: app }).catch((error: unknown) => {
      throw new Error(`${command} printed:\n${(error as { stdout: string }).stdout}`, {
        cause: error,
      });
    });
    return stdout.trim();
  }

  beforeAll(async () => {
    app = await mkdtemp(join(tmpdir(), "fetchway-"));
    // Build in a copy, so that the project's dist folder does not change.
    const copy = join(app, "copy");
    const sources =
      "src runtimes integrations command build.ts package.json tsconfig.json tsconfig.build.json";
    for (const part of [...sources.split(" "), ...manifest.files]) {
      // The copy builds its own dist. If a listed file is missing, another test reports it.
      if (part === "dist" || !existsSync(join(root, part))) continue;
      // Other tests write copies of examples, whose names begin with "_", and remove them again.
      const filter = (path: string): boolean => !basename(path).startsWith("_");
      await cp(join(root, part), join(copy, part), { recursive: true, filter });
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

  test("the package contains the files of its exports, and no sources except the examples", () => {
    const packed = globSync("**/*", { cwd: installed() });
    expect(packed).toEqual(expect.arrayContaining(manifest.files));
    expect(
      packed.filter((file) =>
        /^(?!examples\/).*(?<!\.d)\.ts$|^(test|src|runtimes|integrations|command|node_modules)/.test(
          file,
        ),
      ),
    ).toEqual([]);
    for (const { types, default: code } of Object.values(manifest.exports["."])) {
      expect(packed).toEqual(expect.arrayContaining([types.slice(2), code.slice(2)]));
    }
  });

  test("an import of the package loads few files, and none of Node's large modules", async () => {
    const code = `import { registerHooks } from "node:module";
      const files = [];
      registerHooks({ load: (url, context, next) => (files.push(url), next(url, context)) });
      const before = new Set(process.moduleLoadList);
      await import("fetchway");
      const builtin = process.moduleLoadList.filter((name) => !before.has(name));
      console.log(JSON.stringify({ files, builtin }));`;
    const loaded = JSON.parse(await run("node", "--input-type=module", "--eval", code)) as {
      files: string[];
      builtin: string[];
    };
    // These are the entry and the files that it shares with other entries. Unbundled, each source would be a separate file.
    expect(loaded.files.length).toBeGreaterThan(1);
    expect(loaded.files.length).toBeLessThan(18);
    expect(loaded.builtin.filter((name) => /\b(?:http|net|tls|undici)$/.test(name))).toEqual([]);
  });

  test("the files of the package import only its dependencies, and no helper of the bundler", () => {
    const packages = globSync("dist/**/*.js", { cwd: installed() }).flatMap((file) =>
      Array.from(
        readFileSync(join(installed(), file), "utf8").matchAll(
          /^(?:import|export)\b[^"]*\bfrom "((?!node:)[^".][^"]*)"|\bimport\("([^".]+)"\)/gm,
        ),
        ([, from, lazy = from]) => lazy as string,
      ),
    );
    const own = new RegExp(`^${manifest.name}(?:/|$)`);
    expect(new Set(packages.filter((path) => !own.test(path)))).toEqual(
      new Set([...Object.keys(manifest.dependencies), ...Object.keys(manifest.peerDependencies)]),
    );
  });

  test("Node can import the package", async () => {
    const code = `import { proxyFetch, createProxy } from "fetchway";
      import { transformText } from "fetchway/bodies";
      const interceptors = { request: [transformText((text) => text)] };
      createProxy({ target: "http://a.test", interceptors });
      console.log(typeof proxyFetch, typeof createProxy({ target: "http://a.test" }).nodeHandler);`;
    expect(await run("node", "--input-type=module", "--eval", code)).toBe("function function");
  });

  test.each(Object.entries(manifest.exports["."]))(
    '%s finds the entry of its runtime for `import "fetchway"`',
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
    "fetchway/%s is the same entry on every runtime",
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

  test("`balance` of fetchway/upstreams makes a target that Node's entry and fetchway/fetch accept", async () => {
    const code = `import { createProxy } from "fetchway";
      import { createProxy as ofFetch } from "fetchway/fetch";
      import { balance } from "fetchway/upstreams";
      const target = balance(["http://a.test", "http://b.test"]);
      createProxy({ target });
      ofFetch({ target });
      console.log(target.states().map(({ name, state }) => name + " " + state).join());`;
    expect(await run("node", "--input-type=module", "--eval", code)).toBe(
      "http://a.test up,http://b.test up",
    );
  });

  /** TypeScript's options for module resolution. With each, "fetchway" has the members of Node's proxies. */
  const resolutions: Record<string, object> = {
    node16: { module: "node16", moduleResolution: "node16" },
    nodenext: { module: "nodenext", moduleResolution: "nodenext" },
    bundler: { module: "esnext", moduleResolution: "bundler" },
    preserve: { module: "preserve" },
    "bundler with the condition": {
      module: "esnext",
      moduleResolution: "bundler",
      customConditions: ["node"],
    },
  };

  const files: Record<string, string> = {
    "types.ts": `import { createProxy, proxyFetch, ProxyError, type ProxyOptions } from "fetchway";
      const options: ProxyOptions = { timeout: 5 };
      export const response: Promise<Response> = proxyFetch(new Request("http://a.test"), "http://b.test", options);
      export const code: "dns_error" extends ProxyError["code"] ? true : false = true;
      // @ts-expect-error: there is no such option.
      createProxy({ target: "http://b.test", timeOut: 5 });`,
    "bodies.ts": `import { createProxy } from "fetchway";
      import { type Interceptor, transformJson, transformText } from "fetchway/bodies";
      const upper: Interceptor = transformText((text, { headers }) => headers.has("x-a") ? text : undefined);
      const hide = transformJson<{ a?: string }>(async ({ a: _, ...rest }) => rest, { tooLarge: "pass" });
      createProxy({ target: "http://b.test", interceptors: { request: [upper, hide] } });
      // @ts-expect-error: the function returns text.
      transformText(() => 5);`,
    "fetchway.config.ts": `import { defineConfig } from "fetchway/config";
      export default defineConfig({
        server: { port: 8080, log: "json" },
        timeout: 5000,
        routes: [
          { match: "/api", target: "http://b.test", stripPrefix: "/api", pool: { maxSockets: 5 } },
          {
            match: ["b.test/", "*.b.test"],
            target: (request) => new URL("http://c.test", request.url),
            onRequest: (draft) => draft.headers.set("x-a", "b"),
          },
        ],
      });
      // @ts-expect-error: a route has a target.
      defineConfig({ routes: [{ match: "/api" }] });
      // @ts-expect-error: there is no such option of the server.
      defineConfig({ target: "http://b.test", server: { prot: 5 } });`,
    "entries.ts": `import { createServer } from "node:http";
      import { createProxy, type NodeHandler } from "fetchway/node";
      import { createProxy as createBun } from "fetchway/bun";
      import { createTransport as ofDeno } from "fetchway/deno";
      import { createTransport as ofWorkers } from "fetchway/workerd";
      import { createProxy as createFetch, createTransport as ofFetch, type Transport } from "fetchway/fetch";
      import { balance, type Balancer, type Policy } from "fetchway/upstreams";
      import { viteProxy, type VitePlugin } from "fetchway/vite";
      import { createRuleHandler, type RuleHandler } from "fetchway/rules";
      const target = "http://b.test";
      export const handler: NodeHandler = createProxy({ target }).nodeHandler;
      createServer(createProxy({ target, transport: ofFetch() }).nodeHandler);
      export const size: number = createBun({ target }).maxRequestBodySize;
      export const transports: Transport[] = [ofDeno(), ofWorkers(), ofFetch()];
      const last: Policy = { pick: (able) => able.at(-1) ?? able[0]! };
      const several: Balancer = balance([{ target, weight: 2 }], { policy: last });
      createProxy({ target: several });
      // @ts-expect-error: there is no such policy.
      balance([target], { policy: "random" });
      export const plugin: VitePlugin = viteProxy({ "/api": target, "/b": { target, stripPrefix: "/b" } });
      // @ts-expect-error: there is no such option.
      viteProxy({ "/api": { target, rewrite: () => "/" } });
      export const ruleHandler: RuleHandler = createRuleHandler({ trustProxy: ["loopback"] });
      // @ts-expect-error: only the entry of Node has it.
      void createBun({ target }).nodeHandler;
      // @ts-expect-error: only the entry of Node has it.
      void createFetch({ target }).nodeHandler;`,
  };

  test.each(Object.entries(resolutions))(
    "TypeScript finds the types with the module resolution %s",
    async (_, options) => {
      const main = `import { createServer } from "node:http";
      import { createProxy, type NodeProxy } from "fetchway";
      const proxy: NodeProxy = createProxy({ target: "http://b.test" });
      proxy.attach(createServer(proxy.nodeHandler));`;
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
    },
  );

  test("importing fetchway/undici without undici fails with an error that names undici", async () => {
    const importing = ["--input-type=module", "--eval", 'import "fetchway/undici"'];
    await expect(execute("node", importing, { cwd: app })).rejects.toThrow(
      /Cannot find package 'undici' imported from .*\/fetchway\/dist\/runtimes\/undici\.js/,
    );
  });

  test("fetchway/vite and fetchway/rules run without Vite and h3", async () => {
    const code = `import { viteProxy } from "fetchway/vite";
      import { proxy } from "fetchway/rules";
      const handle = proxy.handler({ options: { to: "http://a.test/**" } });
      console.log(viteProxy({ "/api": "http://a.test" }).name, typeof handle);`;
    expect(await run("node", "--input-type=module", "--eval", code)).toBe("fetchway function");
  });

  const withDOM = { lib: ["es2022", "dom", "dom.iterable"], types: [] };
  const withNode = { lib: ["es2022"], types: ["node"] };
  test.each([
    ["node16", "no types package", withDOM],
    ["nodenext", "no types package", withDOM],
    ["bundler", "no types package", withDOM],
    ["preserve", "no types package", withDOM],
    ["nodenext", "Node's types only", withNode],
  ])(
    "with the module resolution %s, the package's types need %s, with TypeScript 7 and 5.4",
    async (name, _, types) => {
      const entries = Object.keys(manifest.exports).filter(
        // The types of undici come with the package undici, which users of that entry install.
        (path) => !/json$|undici$/.test(path),
      );
      const code = `import { createProxy } from "fetchway/node";
      import { transformText } from "fetchway/bodies";
      const interceptors = { request: [transformText((text) => text)] };
      export const { nodeHandler } = createProxy({ target: "http://b.test", interceptors });
      ${entries.map((path, i) => `export * as entry${i} from "fetchway${path.slice(1)}";`).join("\n")}`;
      await writeFile(join(app, "bare.ts"), code);
      // The older compiler is a dependency of @arethetypeswrong/cli, and "overrides" in package.json sets its version. As a
      // dependency of the project itself, it would replace the program `tsc`.
      const tool = createRequire(join(root, "node_modules/@arethetypeswrong/core/package.json"));
      const compilers = {
        [manifest.devDependencies["typescript"] as string]: join(
          root,
          "node_modules/typescript/bin/tsc",
        ),
        "5.4.5": tool.resolve("typescript/bin/tsc"),
      };
      const compilerOptions = {
        strict: true,
        noEmit: true,
        target: "es2022",
        skipLibCheck: false,
        // Skip TypeScript's own declarations, whose check takes most of the time.
        skipDefaultLibCheck: true,
        ...types,
        ...resolutions[name],
      };
      const config = "tsconfig.bare.json";
      await writeFile(join(app, config), JSON.stringify({ compilerOptions, files: ["bare.ts"] }));
      for (const [version, path] of Object.entries(compilers)) {
        expect(await run("node", path, "--version")).toBe(`Version ${version}`);
        expect(await run("node", path, "-p", config)).toBe("");
      }
    },
  );

  describe("fetchway/server, the ready-to-run server", () => {
    const upstream = new Upstream();
    beforeAll(() => upstream.listen());
    afterAll(() => upstream.stop());

    /** The command lines that start the server, without its port. `server.ts` re-exports the server. */
    const lines = [
      "deno serve -A npm:fetchway/server",
      "deno serve -A server.ts",
      "bun server.ts",
      "srvx --prod server.ts",
      "wrangler dev server.ts --ip 127.0.0.1 --compatibility-date 2026-10-01",
    ];

    /** Starts the server in the app's folder, on a free port. */
    async function start(line: string, target?: string): Promise<Program> {
      await writeFile(join(app, "server.ts"), 'export { default } from "fetchway/server";\n');
      const [tool = "", ...args] = line.split(" ");
      const port = await findPort();
      // `deno serve` expects its options before the file.
      if (tool === "deno") args.splice(1, 0, "--port", `${port}`);
      else if (tool !== "bun") args.push("--port", `${port}`);
      if (tool === "wrangler") args.push("--var", `FETCHWAY_TARGET:${target}`);
      const vars = target === undefined ? {} : { FETCHWAY_TARGET: target };
      const env = { PORT: `${port}`, WRANGLER_SEND_METRICS: "false", ...vars };
      return startProgram(tool, args, env, app);
    }

    test.each(lines)("the server forwards requests when it is started by: %s", async (line) => {
      await using program = await start(line, upstream.url);
      const [, port] = await program.printed(/https?:\/\/[\w.[\]:-]*:(\d+)/);
      const answer = await fetch(`http://127.0.0.1:${port}/a%2Fb?c`);
      expect([answer.status, upstream.calls.at(-1)?.target]).toEqual([200, "/a%2Fb?c"]);
    });

    test("without FETCHWAY_TARGET, the server prints one line that says so", async () => {
      await using program = await start("deno serve -A npm:fetchway/server");
      await program.ended();
      expect([program.code(), program.output()]).toEqual([
        2,
        expect.stringMatching(/^fetchway: FETCHWAY_TARGET is not set; .*\n$/),
      ]);
    });
  });

  test("@arethetypeswrong/cli finds no problem in the types of the package", async () => {
    const tool = join(root, "node_modules/.bin/attw");
    const tarball = `${manifest.name}-${manifest.version}.tgz`;
    // The program fails for every problem except those that the profile ignores.
    const printed = await run(tool, tarball, "--profile", "esm-only", "--format", "ascii");
    const named = Array.from(printed.matchAll(/^"fetchway(.*)"$/gm), ([, path]) => `.${path}`);
    expect(named).toEqual(Object.keys(manifest.exports));
  });

  describe("copies of the examples", () => {
    const names = globSync("*/package.json", { cwd: join(root, "examples") }).map((path) =>
      dirname(path),
    );
    const upstream = new Upstream();
    beforeAll(() => upstream.listen());
    afterAll(() => upstream.stop());
    const pinned = { ...manifest.dependencies, ...manifest.devDependencies };

    beforeAll(async () => {
      await cp(join(root, "examples"), join(app, "examples"), {
        recursive: true,
        // Leave out the copies of examples that other tests write there.
        filter: (path) => !/^_|^tsconfig/.test(basename(path)),
      });
      for (const name of [
        "express",
        "fastify",
        "h3",
        "hono",
        "@hono",
        "@opentelemetry",
        "undici",
      ]) {
        await symlink(join(root, "node_modules", name), join(app, "node_modules", name));
      }
    });

    test("examples/README.md lists all examples", async () => {
      const page = await readFile(join(root, "examples/README.md"), "utf8");
      const linked = Array.from(page.matchAll(/\]\(([\w-]+)\/index\.ts\)/g), ([, name]) => name);
      expect(new Set(linked)).toEqual(new Set(names));
    });

    test.each(names)(
      "%s names the packages that it imports, and a way to start it",
      async (name) => {
        const folder = join(app, "examples", name);
        const example = JSON.parse(await readFile(join(folder, "package.json"), "utf8")) as {
          scripts: { start: string };
          dependencies: Record<string, string>;
          devDependencies?: Record<string, string>;
        };
        const code = await readFile(join(folder, "index.ts"), "utf8");
        const imported = Array.from(
          code.matchAll(/from "(?!node:)((?:@[\w-]+\/)?[\w-]+)/g),
          ([, path]) => path as string,
        );
        // The app has to install this peer dependency.
        if (code.includes('"fetchway/undici"')) imported.push("undici");
        const { fetchway, ...others } = { ...example.dependencies, ...example.devDependencies };
        expect(fetchway).toBe(`^${manifest.version}`);
        for (const [other, version] of Object.entries(others)) expect(version).toBe(pinned[other]);
        const tool = /^\w+/.exec(example.scripts.start)?.[0] as string;
        const tools = ["srvx", "wrangler"].includes(tool) ? [tool] : [];
        expect(new Set(["fetchway", ...Object.keys(others)])).toEqual(
          new Set([...imported, ...tools]),
        );
      },
    );

    test("the examples type-check with the package", async () => {
      const compilerOptions = {
        strict: true,
        noEmit: true,
        target: "es2023",
        module: "nodenext",
        lib: ["es2024", "dom", "dom.iterable"],
        types: ["node"],
        skipLibCheck: true,
      };
      const types = join(root, "test/helpers/express.d.ts");
      const config = {
        compilerOptions,
        files: [...names.map((name) => `examples/${name}/index.ts`), types],
      };
      await writeFile(join(app, "tsconfig.json"), JSON.stringify(config));
      expect(await run("node", join(root, "node_modules/typescript/bin/tsc"))).toBe("");
    });

    // The example "workers" needs a second Worker: test/project/examples.deploy.test.ts runs it.
    const alone = names.filter((name) => name !== "workers");

    test.concurrent.each(alone)("%s runs with the package", async (name) => {
      const folder = join(app, "examples", name);
      const file = join(folder, "index.ts");
      const port = await findPort();
      const code = (await readFile(file, "utf8"))
        .replaceAll("http://127.0.0.1:4000", upstream.url)
        .replace("listen(3000", `listen(${port}`);
      await writeFile(file, code);
      const { scripts } = JSON.parse(await readFile(join(folder, "package.json"), "utf8")) as {
        scripts: { start: string };
      };
      const command = scripts.start
        .replace("--port 3000", `--port ${port}`)
        .replace("index.ts", file);
      const [tool = "", ...args] = command.split(" ");
      const env = { PORT: `${port}`, HOST: "127.0.0.1", WRANGLER_SEND_METRICS: "false" };
      await using program = startProgram(tool, args, env);
      const request = { method: "POST", body: "x", headers: { "x-example": name } };
      const url = `http://127.0.0.1:${port}/api/a`;
      const ask = (): Promise<Response | undefined> => fetch(url, request).catch(() => undefined);
      // Ask until a response comes, because not every example prints that it listens.
      let response = await ask();
      while (response === undefined) {
        if (program.code() !== undefined) throw new Error(program.output());
        await pause(20);
        response = await ask();
      }
      expect([response.status, await response.text()]).toEqual([200, "x"]);
    });
  });

  test("the command reads a config file that imports `defineConfig` from fetchway/config", async () => {
    const config = `import { defineConfig } from "fetchway/config";
      export default defineConfig({ routes: [{ match: "/a", target: "http://b.test:1" }] });`;
    await writeFile(join(app, "my.config.mjs"), config);
    const bin = join(installed(), manifest.bin["fetchway"] ?? "");
    const shown = await run("node", bin, "--config", "my.config.mjs", "--inspect", "/a/b");
    expect(shown).toContain("GET /a/b HTTP/1.1");
    expect(shown).toContain("Host: b.test:1");
  });

  test("the command of the package runs, and prints its version", async () => {
    const bin = join(installed(), manifest.bin["fetchway"] ?? "");
    expect(await readFile(bin, "utf8")).toMatch(/^#!\/usr\/bin\/env node\n/);
    expect(await run("node", bin, "--version")).toContain(manifest.version);
  });

  test("the lines of docs/deploy.md bundle the command into one file", async () => {
    const page = await readFile(join(root, "docs/deploy.md"), "utf8");
    const [, bundle = "", start = ""] =
      /```sh\nnpx (esbuild .*)\n(node fetchway\.cjs .*)\n```/.exec(page) ?? [];
    expect(page).toContain(
      `esbuild ${/^\d+\.\d+/.exec(manifest.devDependencies["esbuild"] ?? "")?.[0]}`,
    );
    const [, ...args] = bundle.split(" ");
    await run(join(root, "node_modules/.bin/esbuild"), ...args, "--log-level=warning");
    // The bundle's folder has no other file of the package.
    const folder = await mkdtemp(join(tmpdir(), "fetchway-"));
    await cp(join(app, "fetchway.cjs"), join(folder, "fetchway.cjs"));
    const [node = "", ...words] = start.split(" ");
    const { stdout, stderr } = await execute(node, words, { cwd: folder });
    expect([stdout, stderr]).toEqual([`${manifest.version}\n`, ""]);
    await rm(folder, { recursive: true });
  });

  test("npm install --omit=dev prints no warning, and the installed command serves the demo", async () => {
    const folder = join(app, "installed");
    await mkdir(folder);
    // The test needs no network, because the dependencies are installed from files, too.
    const overrides: Record<string, string> = {};
    for (const name of Object.keys(manifest.dependencies)) {
      const source = join(root, "node_modules", name);
      const { stdout } = await execute("npm", ["pack", source, "--ignore-scripts", "--silent"], {
        cwd: folder,
      });
      overrides[name] = `file:${stdout.trim()}`;
    }
    const tarball = `file:${join(app, `${manifest.name}-${manifest.version}.tgz`)}`;
    const dependencies = { [manifest.name]: tarball, ...overrides };
    await writeFile(join(folder, "package.json"), JSON.stringify({ dependencies, overrides }));
    const flags = ["--omit=dev", "--offline", "--no-audit", "--no-fund"];
    const env: NodeJS.ProcessEnv = {
      ...process.env,
      npm_config_cache: join(folder, "cache"),
      npm_config_update_notifier: "false",
    };
    // If npm's setting `nodedir` is in the environment, npm prints a warning about it.
    for (const name of Object.keys(env)) if (/^npm_config_nodedir$/i.test(name)) delete env[name];
    const { stdout, stderr } = await execute("npm", ["install", ...flags], { cwd: folder, env });
    expect(stdout.trim()).toMatch(/^added \d+ packages in \S+$/);
    expect(stderr.replace(/^npm warn Unknown user config .*\n/gm, "")).toBe("");

    const demo = spawn(join(folder, "node_modules/.bin/fetchway"), ["--demo", "--port", "0"]);
    try {
      let printed = "";
      demo.stdout.setEncoding("utf8").on("data", (text: string) => (printed += text));
      await until(() => /listens on http:\S+ /.test(printed) || demo.exitCode !== null, "the demo");
      const [, origin] = /listens on (http:\S+) /.exec(printed) ?? [];
      const response = await fetch(`${origin}/headers`);
      expect(await response.json()).toMatchObject({ headers: { "x-forwarded-for": "127.0.0.1" } });
    } finally {
      demo.kill();
    }
  });
});
