/** The examples of README and the server of the quick start, each started as a reader would start it. */
import { readFileSync, rmSync, writeFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { expect, test } from "vitest";
import { expectAllRun, readBlock } from "./_blocks.ts";
import { useEcho } from "../helpers/echo.ts";
import { type Program, startProgram } from "../helpers/program.ts";
import { readPage } from "./_readme.ts";
import { findPort } from "../helpers/serve.ts";
import { pause, until } from "../helpers/wait.ts";

const upstream = useEcho();

/** The blocks, each with its framework or program, and the path that the upstream receives for `/api/a%2Fb?c`. */
const EXAMPLES: readonly [place: string, name: string, path: string][] = [
  ["README.md: h3", "h3", "/api/a%2Fb?c"],
  ["README.md: Hono", "hono", "/api/a%2Fb?c"],
  ["README.md: Workers", "wrangler", "/api/a%2Fb?c"],
  ["README.md: Deno", "deno", "/api/a%2Fb?c"],
  ["README.md: Bun", "bun", "/api/a%2Fb?c"],
  ["README.md: node:http", "node", "/api/a%2Fb?c"],
  ["docs/frameworks.md: Express", "express", "/a%2Fb?c"],
  ["docs/quickstart.md: node:http, with a graceful stop", "quickstart", "/api/a%2Fb?c"],
];

const examples = EXAMPLES.map(([place, name, path]) => ({ name, path, code: readBlock(place) }));

/** For each program other than Node, a function that starts a file on a port. */
const starts: Record<string, (file: string, port: string) => Program> = {
  bun: (file, port) => startProgram("bun", ["run", file], { PORT: port }),
  deno: (file, port) =>
    startProgram("deno", ["serve", "-A", "--host", "127.0.0.1", "--port", port, file]),
  wrangler: (file, port) =>
    startProgram("wrangler", ["dev", "--port", port, "--ip", "127.0.0.1", file], {
      WRANGLER_SEND_METRICS: "false",
    }),
};

/** Fetches a URL as soon as the program listens. */
async function fetchWhenReady(url: string, program: Program): Promise<Response> {
  const deadline = performance.now() + 60_000;
  for (;;) {
    try {
      return await fetch(url);
    } catch (error) {
      if (program.code() !== undefined) throw new Error(program.output(), { cause: error });
      if (performance.now() > deadline) throw error;
      await pause(20);
    }
  }
}

test.concurrent.each(examples)(
  "the example for $name forwards requests",
  async ({ name, path, code }) => {
    const port = await findPort();
    const copy = new URL(`../../examples/_readme-${name}-${process.pid}.ts`, import.meta.url);
    expect(code).toContain('"fetchway"');
    expect(code).toContain("http://127.0.0.1:4000");
    writeFileSync(
      copy,
      code
        .replace('"fetchway"', '"#fetchway"')
        .replace("http://127.0.0.1:4000", upstream.url)
        .replaceAll("3000", `${port}`),
    );
    const start = starts[name] ?? ((file) => startProgram("node", [file]));
    try {
      await using program = start(fileURLToPath(copy), `${port}`);
      const response = await fetchWhenReady(`http://127.0.0.1:${port}/api/a%2Fb?c`, program);
      expect(response.status).toBe(200);
      expect(await response.json()).toMatchObject({ method: "GET", path });
    } finally {
      rmSync(copy);
    }
  },
);

/** The commands of README, each with the lines that README shows as its output. */
const shown = readBlock("README.md: Without code")
  .trim()
  .split(/^\$ npx fetchway /m)
  .slice(1)
  .map((text) => text.trim().split("\n"));

test.each(shown.map(([line = "", ...output]) => ({ line, output })))(
  "README's `npx fetchway $line` prints what README shows, and forwards",
  async ({ line, output }) => {
    const port = await findPort();
    const words = line.replace(/^4000/, new URL(upstream.url).port).match(/"[^"]*"|\S+/g) ?? [];
    const flags = words.map((word) => word.replaceAll('"', ""));
    await using program = startProgram("node", ["command/main.ts", ...flags, `--port=${port}`]);
    const response = await fetchWhenReady(`http://127.0.0.1:${port}/headers?c`, program);
    // Ignore ports: those of the test, of the demo upstream and of README's upstream differ.
    const withoutPorts = (text: string): string => text.replaceAll(/:\d+/g, ":0");
    // Without a terminal, the command does not say how to stop it.
    const expected = output
      .filter((each) => !each.includes("…"))
      .map((each) => each.replace("; Ctrl+C stops it.", ":"));
    expect(expected.length).toBeGreaterThan(1);
    // The response may arrive before the output, which the program has printed earlier.
    await until(() => program.output().split("\n").length > expected.length, "the output");
    const printed = withoutPorts(program.output()).split("\n");
    expect(printed.slice(0, expected.length)).toEqual(expected.map(withoutPorts));
    expect(response.status).toBe(200);
    if (line.includes("--header")) {
      expect(await response.json()).toMatchObject({ headers: { "x-app": "shop" } });
    }
  },
);

test("wrangler.toml has the settings that docs/quickstart.md describes, with `routes` in a comment", () => {
  const config = readFileSync(new URL("../../wrangler.toml", import.meta.url), "utf8");
  expect(readPage("docs/quickstart.md")).toMatch(/uncomment `routes` in `wrangler\.toml`/);
  expect(config).toMatch(/^# routes = \[\{ pattern = "[^"]+", zone_name = "[^"]+" \}\]$/m);
  expect(config).toMatch(/^FETCHWAY_TARGET = /m);
});

test("each code block that is assigned to this file is run", () =>
  expectAllRun("readme.run.test.ts"));
