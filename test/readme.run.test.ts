/** The examples of README, each run as its reader runs it. */
import { readFileSync, rmSync, writeFileSync } from "node:fs";
import { createServer } from "node:net";
import { fileURLToPath } from "node:url";
import { expect, test } from "vitest";
import { useEcho } from "./_echo.ts";
import { type Program, startProgram } from "./_program.ts";
import { listen } from "./_serve.ts";
import { pause } from "./_wait.ts";

const upstream = useEcho();
const readme = readFileSync(new URL("../README.md", import.meta.url), "utf8");

/** How an example is recognized, with the frameworks or programs that it is for. */
const KINDS: [RegExp, string[]][] = [
  [/ from "node:http"/, ["node"]],
  [/ from "h3"/, ["h3"]],
  [/ from "hono"/, ["hono"]],
  [/ from "express"/, ["express"]],
  [/^export default createProxy\(/m, ["bun", "deno", "wrangler"]],
];

const examples = Array.from(readme.matchAll(/^```ts\n([\s\S]*?)^```$/gm), ([, code = ""]) => {
  const names = KINDS.find(([sign]) => sign.test(code))?.[1] ?? ["unknown"];
  return names.map((name) => ({ name, code }));
}).flat();

/** Starts a file on a port. What is not named here runs on Node. */
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

test("README has an example for each framework and runtime", () => {
  const names = examples.map(({ name }) => name);
  expect(names).toEqual(["node", "h3", "hono", "express", "bun", "deno", "wrangler"]);
});

test.concurrent.each(examples)("the example for $name forwards", async ({ name, code }) => {
  const placeholder = createServer();
  const port = await listen(placeholder);
  placeholder.close();
  const copy = new URL(`../examples/_readme-${name}-${process.pid}.ts`, import.meta.url);
  expect(code).toContain('"fetchway"');
  expect(code).toContain("http://127.0.0.1:4000");
  writeFileSync(
    copy,
    code
      .replace('"fetchway"', '"#proxy"')
      .replace("http://127.0.0.1:4000", upstream.url)
      .replaceAll("3000", `${port}`),
  );
  const start = starts[name] ?? ((file) => startProgram("node", [file]));
  try {
    await using program = start(fileURLToPath(copy), `${port}`);
    const response = await fetchWhenReady(`http://127.0.0.1:${port}/api/a%2Fb?c`, program);
    expect(response.status).toBe(200);
    const { headers, ...request } = (await response.json()) as Record<string, object>;
    expect(request).toMatchObject({
      method: "GET",
      path: ["express", "h3"].includes(name) ? "/a%2Fb?c" : "/api/a%2Fb?c",
    });
    if (name === "node") expect(headers).toMatchObject({ "x-app": "shop" });
  } finally {
    rmSync(copy);
  }
});

test("the lines of wrangler.toml that README shows are in it, one of them as a comment", () => {
  const config = readFileSync(new URL("../wrangler.toml", import.meta.url), "utf8");
  const lines = /^```toml\n([\s\S]*?)^```$/m.exec(readme)?.[1]?.trim().split("\n") ?? [];
  expect(lines).toHaveLength(2);
  const [route = "", target = ""] = lines;
  expect(config).toContain(`\n# ${route}\n`);
  expect(config).toContain(`\n${target.split(" = ")[0]} = `);
});
