/** The code blocks of README and of the pages in docs/, and the test that runs each block. */
import { rmSync, writeFileSync } from "node:fs";
import { basename } from "node:path";
import { expect } from "vitest";
import { pages, readPage } from "./_readme.ts";

export interface Block {
  /** The page and the heading. From the second block below a heading on, the number of the block is added. */
  readonly place: string;
  readonly language: string;
  readonly code: string;
  /** A file name for the block, with the number of its first line. */
  readonly file: string;
}

function readBlocks(page: string): Block[] {
  const seen = new Map<string, number>();
  const found: Block[] = [];
  let heading = "";
  let begin: number | undefined;
  let language = "";
  const lines = readPage(page).split("\n");
  for (const [i, line] of lines.entries()) {
    if (begin === undefined && line.startsWith("#")) heading = line.replace(/^#+ /, "");
    if (!line.startsWith("```")) continue;
    if (begin === undefined) {
      begin = i + 1;
      language = line.slice(3);
      continue;
    }
    const count = (seen.get(heading) ?? 0) + 1;
    seen.set(heading, count);
    found.push({
      place: `${page}: ${heading}${count === 1 ? "" : ` (${count})`}`,
      language,
      code: `${lines.slice(begin, i).join("\n")}\n`,
      file: `${basename(page, ".md")}-${begin + 1}.ts`,
    });
    begin = undefined;
  }
  return found;
}

export const blocks: readonly Block[] = pages.flatMap(readBlocks);

/** The source file that replaces each import of the package. */
const SOURCES: Readonly<Record<string, string>> = {
  '"fetchway"': '"../runtimes/node.ts"',
  '"fetchway/transport"': '"../src/transport.ts"',
  '"fetchway/errors"': '"../src/explain/errors.ts"',
  '"fetchway/requests"': '"../src/requests.ts"',
  '"fetchway/mirror"': '"../src/exchange/mirror.ts"',
  '"fetchway/options"': '"../src/options.ts"',
  '"fetchway/bodies"': '"../src/bodies.ts"',
  '"fetchway/streams"': '"../src/streams.ts"',
  '"fetchway/upstreams"': '"../src/upstreams/balance.ts"',
  '"fetchway/undici"': '"../runtimes/undici.ts"',
  '"fetchway/vite"': '"../integrations/vite.ts"',
  '"fetchway/rules"': '"../integrations/rules.ts"',
  '"fetchway/config"': '"../command/config.ts"',
  '"fetchway/bun"': '"../runtimes/bun.ts"',
};

/** The places of the blocks that the current test file has read. */
const used = new Set<string>();

/** Returns the code of a block, and notes that this test file runs it. */
export function readBlock(place: string): string {
  used.add(place);
  const block = blocks.find((each) => each.place === place);
  if (block === undefined) throw new Error(`there is no block ${place}`);
  return block.code;
}

let copies = 0;

/**
 * Writes a copy of a block, which imports the sources, and calls `use` with its URL.
 * @param replaced texts that must occur in the block, each with its replacement
 */
export async function withCopy<T>(
  place: string,
  replaced: Readonly<Record<string, string>>,
  use: (copy: URL) => T | Promise<T>,
): Promise<T> {
  let code = readBlock(place);
  for (const [text, other] of Object.entries(replaced)) {
    expect(code, place).toContain(text);
    code = code.replaceAll(text, other);
  }
  for (const [text, source] of Object.entries(SOURCES)) code = code.replaceAll(text, source);
  // Each copy has its own name, because a module is imported only once. In examples/, a copy finds the packages.
  const name = `_block-${basename(import.meta.filename, ".ts")}-${process.pid}-${++copies}.ts`;
  const copy = new URL(`../../examples/${name}`, import.meta.url);
  writeFileSync(copy, code);
  try {
    return await use(copy);
  } finally {
    rmSync(copy);
  }
}

export function importBlock<T>(
  place: string,
  replaced: Readonly<Record<string, string>> = {},
): Promise<T> {
  return withCopy(place, replaced, async ({ href }) => (await import(href)) as T);
}

/** Expects that the tests of a file have read exactly the blocks that `RUN` lists for it. */
export function expectAllRun(testFile: string): void {
  expect([...used].toSorted()).toEqual(blocksOf(testFile).toSorted());
}

/** Returns the places of the blocks that a test file runs. */
export function blocksOf(testFile: string): string[] {
  const patterns = RUN[testFile] ?? [];
  return blocks.map(({ place }) => place).filter((place) => matches(patterns, place));
}

/** Whether a list of places contains a place. An entry with a star matches all blocks of its page. */
export function matches(patterns: readonly string[], place: string): boolean {
  return patterns.some((each) =>
    each.endsWith("*") ? place.startsWith(each.slice(0, -1)) : each === place,
  );
}

/** The blocks that tests run, by test file. */
export const RUN: Readonly<Record<string, readonly string[]>> = {
  "readme.run.test.ts": [
    "README.md: h3",
    "README.md: Hono",
    "README.md: Workers",
    "README.md: Deno",
    "README.md: Bun",
    "README.md: node:http",
    "README.md: Without code",
    "docs/frameworks.md: Express",
    "docs/quickstart.md: node:http, with a graceful stop",
  ],
  "recipes.test.ts": ["docs/recipes.md: *"],
  "frameworks.test.ts": [
    "docs/frameworks.md: Koa",
    "docs/frameworks.md: Fastify",
    "docs/frameworks.md: Next",
    "docs/frameworks.md: Nitro (2)",
    "docs/frameworks.md: SvelteKit",
    "docs/frameworks.md: Astro",
    "docs/frameworks.md: React Router",
    "docs/frameworks.md: TanStack Start",
    "docs/frameworks.md: Vite",
    "docs/coming-from.md: Vite's `server.proxy`",
    "docs/coming-from.md: h3's `proxyRequest`",
  ],
  "comingfrom.script.test.ts": [
    "docs/coming-from.md: http-proxy",
    "docs/coming-from.md: http-proxy (2)",
  ],
  "comingfromnginx.test.ts": [
    "docs/coming-from-nginx.md: One configuration",
    "docs/coming-from-nginx.md: One configuration (3)",
    "docs/coming-from-nginx.md: What is not here",
  ],
  "command/permissions.test.ts": ["docs/deploy.md: The fewest permissions"],
  "command/replay.test.ts": ["docs/command.md: Record and replay"],
  "docs.run.test.ts": [
    "docs/quickstart.md: One call",
    "docs/quickstart.md: Options that do not change",
    "docs/bodies.md: *",
    "docs/clients.md: *",
    "docs/command.md: The command",
    "docs/command.md: Routes and config files",
    "docs/command.md: Routes and config files (2)",
    "docs/command.md: Conditions of a route",
    "docs/command.md: Several upstreams",
    "docs/command.md: Several upstreams (2)",
    "docs/command.md: Streams",
    "docs/command.md: What a request becomes",
    "docs/connections.md: *",
    "docs/hooks.md: *",
    "docs/http2.md: *",
    "docs/limits.md: *",
    "docs/redirects.md: *",
    "docs/security.md: Behind another proxy",
    "docs/targets.md: *",
    "docs/upstreams.md: *",
    "docs/websockets.md: *",
  ],
};

const IN_MATRIX = "npm run test:frameworks runs it with the framework, which is not installed here";

/** The blocks that no test runs unchanged, each with the reason. Those in TypeScript are type-checked. */
export const NOT_RUN: Readonly<Record<string, string>> = {
  "README.md: Fetchway": "test/project/install.test.ts installs the packed package",
  "docs/quickstart.md: In a clone": "it installs a clone; test/command/demo.test.ts runs the demo",
  "docs/quickstart.md: Deployments":
    "test/project/install.test.ts runs these lines with the packed package, on free ports",
  "docs/command.md: A socket instead of a port":
    "it needs nginx; test/command/socket.test.ts runs such a file where nginx is installed",
  "docs/command.md: The PROXY protocol":
    "it is a configuration of HAProxy, tried by hand with HAProxy 2.6; test/command/proxyprotocol.test.ts sends such headers",
  "docs/command.md: The log": "it is output; test/command/log.test.ts has the lines",
  "docs/command.md: Record and replay (2)":
    "it is output; test/command/replay.test.ts has such lines",
  "docs/deploy.md: One machine":
    "it needs the user's config file; test/command/workers.test.ts starts such lines",
  "docs/deploy.md: One machine (2)":
    "it needs systemd; tried by hand with `systemd-analyze verify`",
  "docs/scoreboard.md: Run it":
    "it needs nginx and HAProxy; test/compare/faulty.test.ts runs the rules, and test/compare/report.test.ts these flags",
  "docs/performance.md: Garbage collection":
    "it takes a minute, and shows figures; test/project/bench.tail.test.ts has its flags",
  "docs/deploy.md: One file":
    "test/project/install.test.ts runs these lines with the packed package, and test/command/bundle.test.ts such bundles",
  "docs/deploy.md: Kubernetes":
    "it needs a cluster; test/project/examples.deploy.test.ts checks the manifests, and `npm run test:deploy` runs the pods",
  "docs/deploy.md: Workers":
    "it is part of examples/workers, which test/project/examples.deploy.test.ts bundles and runs",
  "docs/deploy.md: Workers (2)":
    "it is examples/workers, which test/project/examples.deploy.test.ts bundles and runs",
  "docs/security.md: Behind another proxy (2)":
    "it is a drawing; test/unit/request/trust.test.ts has such chains",
  "docs/coming-from-nginx.md: One configuration (2)":
    "it needs Caddy, whose `caddy validate` has accepted it",
  "docs/frameworks.md: NestJS": IN_MATRIX,
  "docs/frameworks.md: Hapi": IN_MATRIX,
  "docs/frameworks.md: Elysia, and Hono on Bun": IN_MATRIX,
  "docs/frameworks.md: Elysia, and Hono on Bun (2)": IN_MATRIX,
  "docs/frameworks.md: Next (2)": IN_MATRIX,
  "docs/frameworks.md: Nuxt": IN_MATRIX,
  "docs/frameworks.md: Nuxt (2)": IN_MATRIX,
  "docs/frameworks.md: Nitro": IN_MATRIX,
  "docs/frameworks.md: Nitro (3)": IN_MATRIX,
};
