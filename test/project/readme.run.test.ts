/** The examples of README and the server of the quick start, each started as a reader would start it. */
import { readFileSync, rmSync, writeFileSync } from "node:fs";
import { createServer } from "node:net";
import { fileURLToPath } from "node:url";
import { expect, test } from "vitest";
import { expectAllRun, readBlock } from "./_blocks.ts";
import { useEcho } from "../helpers/echo.ts";
import { type Program, startProgram } from "../helpers/program.ts";
import { readPage } from "./_readme.ts";
import { listen } from "../helpers/serve.ts";
import { pause } from "../helpers/wait.ts";

const upstream = useEcho();

/** The blocks, each with its frameworks or programs, and the path that the upstream receives for `/api/a%2Fb?c`. */
const EXAMPLES: readonly [place: string, names: string[], path: string][] = [
  ["README.md: First example", ["node"], "/api/a%2Fb?c"],
  ["README.md: In your framework", ["h3"], "/a%2Fb?c"],
  ["README.md: In your framework (2)", ["hono"], "/api/a%2Fb?c"],
  ["README.md: In your framework (3)", ["express"], "/a%2Fb?c"],
  ["README.md: In your framework (4)", ["bun", "deno", "wrangler"], "/api/a%2Fb?c"],
  ["docs/quickstart.md: node:http, with a graceful stop", ["quickstart"], "/api/a%2Fb?c"],
];

const examples = EXAMPLES.flatMap(([place, names, path]) =>
  names.map((name) => ({ name, path, code: readBlock(place) })),
);

/** Starts a file on a port, on Node unless another program is named here. */
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

/** Returns a port that is free. */
async function findPort(): Promise<number> {
  const placeholder = createServer();
  const port = await listen(placeholder);
  placeholder.close();
  return port;
}

test.concurrent.each(examples)("the example for $name forwards", async ({ name, path, code }) => {
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
    const { headers, ...request } = (await response.json()) as Record<string, object>;
    expect(request).toMatchObject({ method: "GET", path });
    if (name === "node") expect(headers).toMatchObject({ "x-app": "shop" });
  } finally {
    rmSync(copy);
  }
});

test("README's command without code forwards", async () => {
  const port = await findPort();
  const [, line = ""] = /`npx fetchway 4000 ([^`]+)`/.exec(readPage("README.md")) ?? [];
  const words = line.replace("3000", `${port}`).match(/"[^"]*"|\S+/g) ?? [];
  const flags = words.map((word) => word.replaceAll('"', ""));
  await using program = startProgram("node", [
    "command/main.ts",
    new URL(upstream.url).port,
    ...flags,
  ]);
  const response = await fetchWhenReady(`http://127.0.0.1:${port}/a%2Fb?c`, program);
  expect(await response.json()).toMatchObject({ path: "/a%2Fb?c", headers: { "x-app": "shop" } });
});

test("wrangler.toml has the settings that README describes, with `routes` in a comment", () => {
  const config = readFileSync(new URL("../../wrangler.toml", import.meta.url), "utf8");
  expect(readPage("README.md")).toMatch(/uncomment `routes` in `wrangler\.toml`/);
  expect(config).toMatch(/^# routes = \[\{ pattern = "[^"]+", zone_name = "[^"]+" \}\]$/m);
  expect(config).toMatch(/^FETCHWAY_TARGET = /m);
});

test("each of these blocks was run", () => expectAllRun("readme.run.test.ts"));
