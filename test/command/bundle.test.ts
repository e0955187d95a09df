/** The command as one file: a bundle, and a single executable. */
import { execFile } from "node:child_process";
import { chmodSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { promisify } from "node:util";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { VERSION } from "../../command/flags/ownpackage.ts";
import { bundleCommand } from "./_bundle.ts";
import { Command, getRaw, upstream } from "./_command.ts";
import { compareVersions, hostNode, hostVersion } from "../hosts/_node.ts";

const execute = promisify(execFile);

/** The folder of the bundles. It is outside of the project, so that a bundle finds no package and no package.json. */
let folder = "";
const inFolder = (name: string): string => join(folder, name);
beforeAll(async () => {
  folder = mkdtempSync(join(tmpdir(), "fetchway-"));
  await bundleCommand(inFolder("fetchway.cjs"), "cjs");
  await bundleCommand(inFolder("fetchway.mjs"), "esm");
});
afterAll(() => rmSync(folder, { recursive: true }));

/** Expects that a program forwards requests. */
async function expectForwards(program: readonly string[], line: string): Promise<void> {
  upstream.handler = (_, res) => void res.end("forwarded");
  const command = new Command(`${line} --log off --port 0`, [], program, "");
  try {
    const [response, body] = await getRaw(await command.origin());
    expect([response.statusCode, body.toString()]).toEqual([200, "forwarded"]);
  } finally {
    command.child.kill();
    await command.exit;
  }
}

describe.each(["fetchway.cjs", "fetchway.mjs"])("the bundle %s", (name) => {
  const program = (): string[] => [hostNode, inFolder(name)];

  test("prints the version of the package", async () => {
    const [node = "", ...args] = program();
    const { stdout } = await execute(node, [...args, "--version"], { cwd: folder });
    expect(stdout).toBe(`${VERSION}\n`);
  });

  test("forwards requests", () => expectForwards(program(), upstream.url));

  test("forwards requests with workers", () =>
    expectForwards(program(), `${upstream.url} --workers 2`));

  test("reads a config file", async () => {
    const config = inFolder("fetchway.config.mjs");
    writeFileSync(config, `export default { target: ${JSON.stringify(upstream.url)} };`);
    await expectForwards(program(), `--config ${config}`);
  });
});

// Before Node 25.5, another program is needed to build a single executable.
describe.skipIf(compareVersions(hostVersion, "25.5.0") < 0)("a single executable", () => {
  const program = (): string[] => [inFolder("fetchway")];
  beforeAll(async () => {
    const config = { main: inFolder("fetchway.cjs"), output: inFolder("fetchway") };
    writeFileSync(inFolder("sea.json"), JSON.stringify(config));
    await execute(hostNode, ["--build-sea", inFolder("sea.json")], { cwd: folder });
    chmodSync(inFolder("fetchway"), 0o755);
  });

  test("forwards requests", () => expectForwards(program(), upstream.url));

  test("forwards requests with workers", () =>
    expectForwards(program(), `${upstream.url} --workers 2`));

  test("reads a config file in JSON, and refuses a config file that is a module, with the fix", async () => {
    writeFileSync(inFolder("c.json"), JSON.stringify({ target: upstream.url }));
    await expectForwards(program(), `--config ${inFolder("c.json")}`);
    writeFileSync(inFolder("c.mjs"), "export default {}");
    const command = new Command(`--config ${inFolder("c.mjs")}`, [], program(), "");
    expect(await command.exit).toBe(2);
    expect(command.stderr).toContain(
      "fetchway: c.mjs: this single executable cannot import files: use a .json file\n",
    );
  });
});
