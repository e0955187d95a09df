/** The code blocks of README and docs/, checked by TypeScript. */
import { spawnSync } from "node:child_process";
import { mkdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { join, resolve } from "node:path";
import { describe, expect, test } from "vitest";
import { blocks } from "./_blocks.ts";

const root = resolve(import.meta.dirname, "../..");

/** The names that blocks use and that their pages introduce in prose. */
const NAMES = `
import type { KeyObject } from "node:crypto";
import type { Server } from "node:http";
import type * as express from "express";
import type * as h3 from "h3";
import type { Hono } from "hono";
import type * as srvx from "srvx";
import type * as fetchway from "fetchway";

declare global {
  const proxyFetch: typeof fetchway.proxyFetch;
  const createProxy: typeof fetchway.createProxy;
  const proxy: ReturnType<typeof fetchway.createProxy>;
  const serve: typeof srvx.serve & typeof h3.serve;
  const target: string;
  const fallback: string;
  const tenants: Record<string, string>;
  const request: Request;
  const ca: string;
  const server: Server;
  const app: h3.H3;
  const hono: Hono;
  const expressApp: ReturnType<typeof express.default>;
  const room: string;
  const env: {
    SERVICE: { fetch(request: Request): Promise<Response> };
    ASSETS: { fetch(request: Request): Promise<Response> };
    ROOMS: { getByName(name: string): { fetch(request: Request): Promise<Response> } };
  };
  const Bun: {
    serve(options: {
      fetch(
        request: Request,
        server: { upgrade(request: Request, options: { data: object }): boolean },
      ): Response | Promise<Response>;
      websocket: object;
    }): void;
  };
  function log(...values: unknown[]): void;
}
`;

interface Entry {
  types: string;
}

const { exports } = JSON.parse(readFileSync(join(root, "package.json"), "utf8")) as {
  exports: { ".": Record<"node" | "default", Entry> } & Record<string, Entry>;
};

/** Returns the source of a declaration file of the package, relative to the folder of the blocks. */
function sourceOf({ types }: Entry): string {
  return types.replace("./dist/", "../../").replace(/\.d\.ts$/, ".ts");
}

/** TypeScript's options for module resolution, each with the condition that selects the entry of `"fetchway"`. */
const resolutions: Record<string, [options: object, condition: "node" | "default"]> = {
  node16: [{ module: "node16", moduleResolution: "node16" }, "node"],
  nodenext: [{ module: "nodenext", moduleResolution: "nodenext" }, "node"],
  bundler: [{ module: "esnext", moduleResolution: "bundler" }, "default"],
  preserve: [{ module: "preserve", moduleResolution: "bundler" }, "default"],
};

const typescript = blocks.filter(({ language }) => language === "ts");

/** Checks a folder of blocks, and returns what TypeScript prints. */
function check(
  name: string,
  checked: typeof blocks,
  others: Readonly<Record<string, string>>,
): string {
  const [options, condition] = resolutions[name] as (typeof resolutions)[string];
  // The folder is in examples/, so that the packages are found.
  const folder = join(root, `examples/_blocks-${process.pid}-${name}-${checked.length}`);
  const write = (file: string, text: string): void => writeFileSync(join(folder, file), text);
  mkdirSync(folder);
  try {
    // An import or export makes each block a module, so that blocks can use the same names.
    for (const { file, code } of checked) write(file, `${code}\nexport {};\n`);
    for (const [file, text] of Object.entries(others)) write(file, text);
    const { ".": main, "./package.json": _, ...subpaths } = exports;
    const paths: Record<string, string[]> = { fetchway: [sourceOf(main[condition])] };
    for (const [path, entry] of Object.entries(subpaths)) {
      paths[`fetchway${path.slice(1)}`] = [sourceOf(entry)];
    }
    write(
      "tsconfig.json",
      JSON.stringify({
        extends: "../tsconfig.json",
        compilerOptions: { ...options, paths },
        include: [".", "../../test/helpers/*.d.ts"],
      }),
    );
    const tsc = join(root, "node_modules/typescript/bin/tsc");
    const { stdout } = spawnSync(process.execPath, [tsc, "-p", folder, "--pretty", "false"], {
      encoding: "utf8",
    });
    return stdout.replaceAll(/^.*_blocks-\d+-\w+-\d+\//gm, "").trim();
  } finally {
    rmSync(folder, { recursive: true });
  }
}

describe.each(Object.keys(resolutions))("TypeScript blocks with %s", (name) => {
  test("every block of README and docs/ is valid TypeScript", () => {
    expect(typescript.length).toBeGreaterThan(50);
    expect(check(name, typescript, { "_names.ts": NAMES })).toBe("");
  });

  test("the code blocks of README are valid in a package made with README's first commands", () => {
    const pasted = typescript.filter(({ place }) => place.startsWith("README.md: "));
    expect(pasted.length).toBeGreaterThan(5);
    const install = blocks.find(({ place }) => place === "README.md: Fetchway")?.code ?? "";
    const [, type] = /^npm pkg set type=(\w+)/m.exec(install) ?? [];
    expect(check(name, pasted, { "package.json": JSON.stringify({ type }) })).toBe("");
  });
});
