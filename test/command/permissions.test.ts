/** The command with the permissions that docs/deploy.md names, and without one of them. */
import { spawn } from "node:child_process";
import { once } from "node:events";
import { cpSync, existsSync, mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { createServer } from "node:http";
import { createServer as createTlsServer } from "node:https";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { expectAllRun, readBlock } from "../project/_blocks.ts";
import { bundleCommand } from "./_bundle.ts";
import { makeCertificate } from "../helpers/certificate.ts";
import { Command, getRaw, programs, upstream } from "./_command.ts";
import { compareVersions, hostNode, hostVersion, isInRange } from "../hosts/_node.ts";
import { findPort, listen } from "../helpers/serve.ts";
import { until, within } from "../helpers/wait.ts";

const APP = "/srv/proxy";
const lines = readBlock("docs/deploy.md: The fewest permissions").trim().split("\n");
/** Whether Node has the flag `--allow-net`. Node 24 and older always permit the network, and refuse the flag. */
const knowsNet = compareVersions(hostVersion, "25.0.0") >= 0;
/**
 * Whether Node has the flag `--permission` and names missing flags in errors. Node 22.12 and older have another
 * flag, and the errors of Node 23 name none.
 */
const hasPermissions =
  isInRange(hostVersion, { from: "22.13.0", below: "23" }) ||
  isInRange(hostVersion, { from: "24.0.0" });

let folder = "";
beforeAll(async () => {
  folder = mkdtempSync(join(tmpdir(), "fetchway-"));
  const dist = join(folder, "node_modules/fetchway/dist/command");
  mkdirSync(dist, { recursive: true });
  await bundleCommand(join(dist, "main.js"), "esm");
  await bundleCommand(join(folder, "deno.mjs"), "esm", "deno");
  cpSync("package.json", join(folder, "node_modules/fetchway/package.json"));
  upstream.handler = (_, res) => void res.end("forwarded");
});
afterAll(() => rmSync(folder, { recursive: true }));

/**
 * Starts a command line of docs/deploy.md with the addresses and files of this test.
 * @param change changes the words of the command line
 * @param variables environment variables of the process, besides those of the tests
 */
async function start(
  line: string,
  change = (words: string[]): string[] => words,
  variables: NodeJS.ProcessEnv = {},
): Promise<Command> {
  const port = line.includes(":3000") ? await findPort() : 0;
  const upstreamPort = new URL(upstream.url).port;
  const words = line
    .replaceAll(APP, folder)
    .replace("npm:fetchway", join(folder, "deno.mjs"))
    .replaceAll("4000", upstreamPort)
    .replaceAll("3000", `${port}`)
    .split(" ")
    .filter((word) => word !== "--allow-net" || knowsNet || line.startsWith("deno"));
  const [tool, ...args] = [...change(words), "--log", "off", "--port", `${port}`];
  const program = tool === "node" ? [hostNode] : [programs.deno[0] as string];
  // On a terminal, Deno would prompt. Unset NO_COLOR: while it is set, srvx does not read TERM, and the test that
  // the permission for TERM is needed would fail.
  if (tool === "deno") args.splice(1, 0, "--no-prompt");
  return new Command("", [], [...program, ...args], "", { NO_COLOR: undefined, ...variables });
}

/** Expects that a command forwards, and prints nothing on stderr but warnings of the runtime. */
async function expectForwards(command: Command): Promise<void> {
  try {
    const [response, body] = await getRaw(await command.origin());
    expect([response.statusCode, body.toString()]).toEqual([200, "forwarded"]);
    // Deno warns about its own `request.signal`, which long requests use.
    expect(command.stderr.replaceAll(/^(?:\(|Deno\.serve: ).*\n/gm, "")).toBe("");
  } finally {
    command.child.kill();
    await command.exit;
  }
}

/** Expects that a command ends, and prints one line without a stack trace. */
async function expectRefusal(command: Command, what: RegExp): Promise<void> {
  expect(await command.exit).not.toBe(0);
  const [said = "", ...more] = command.stderr
    .replaceAll(/^\(.*\n/gm, "")
    .trim()
    .split("\n");
  expect(said).toMatch(/^fetchway: /);
  expect(said).toMatch(what);
  expect(more).toEqual([]);
}

const isRunnable = (line: string): boolean => line.startsWith("deno") || hasPermissions;

describe.each(lines.filter(isRunnable))("the command line %s", (line) => {
  test("forwards a request", async () => expectForwards(await start(line)));

  const flags = line.split(" ").filter((word) => word.startsWith("--allow-"));
  // Leave out the permission to read: without it, Node cannot read the command itself.
  const needed = flags.filter((flag) => {
    const isKnown = flag !== "--allow-net" || knowsNet || line.startsWith("deno");
    return isKnown && !flag.startsWith("--allow-fs-read");
  });
  test.each(needed)(
    "needs %s, and without this flag fails with a message that names it",
    async (flag) => {
      const name = /^--[\w-]+/.exec(flag)?.[0] as string;
      const without = await start(line, (words) => words.filter((word) => !word.startsWith(name)));
      await expectRefusal(without, new RegExp(name));
    },
  );
});

test("each code block that is assigned to this file is run", () =>
  expectAllRun("command/permissions.test.ts"));

const SCRIPT = "/usr/bin/script";
test.skipIf(!existsSync(SCRIPT))(
  "on a terminal, Deno needs no permission for environment variables other than TERM",
  async () => {
    const program = `${programs.deno[0]} run --no-prompt --allow-net --allow-env=TERM ${join(folder, "deno.mjs")}`;
    const line = `${program} ${upstream.url} --port 0`;
    const child = spawn(SCRIPT, ["-qec", line, "/dev/null"], {
      env: { ...process.env, NO_COLOR: undefined, FORCE_COLOR: undefined, TERM: "xterm" },
      stdio: ["pipe", "pipe", "inherit"],
    });
    let said = "";
    child.stdout.setEncoding("utf8").on("data", (text: string) => (said += text));
    await until(() => said.includes("\n") || child.exitCode !== null, "the banner");
    expect(said).toMatch(/^fetchway listens on /);
    // Ctrl-C on the terminal ends the command. A signal to `script` would leave the command running.
    child.stdin.end("\x03");
    await within(once(child, "close"), "the exit");
  },
);

describe("a feature that needs further permissions:", () => {
  const deno = lines.find((line) => line.startsWith("deno")) as string;
  const denoWith =
    (flags: string, target: string) =>
    (words: string[]): string[] => [
      "deno",
      "run",
      ...flags.split(" "),
      words.find((word) => word.endsWith("deno.mjs")) as string,
      ...target.split(" "),
    ];

  test("a config file, on Deno: without the permission to read it, the error names the flag", async () => {
    const path = join(folder, "fetchway.config.json");
    writeFileSync(path, JSON.stringify({ target: upstream.url }));
    const config = `--config ${path}`;
    await expectRefusal(
      await start(deno, denoWith("--allow-net --allow-env=TERM", config)),
      /fetchway\.config\.json".*--allow-read/,
    );
    const flags = `--allow-net --allow-env=TERM --allow-read=${folder}`;
    await expectForwards(await start(deno, denoWith(flags, config)));
  });

  test.skipIf(!hasPermissions)(
    "a config file, on Node: a syntax error in it is reported with the file's name",
    async () => {
      const config = join(folder, "bad.config.mjs");
      writeFileSync(config, "export default {\n  target: 1 2,\n};");
      const words = await start(lines[0] as string, (all) => [
        ...all.slice(0, -1),
        "--config",
        config,
      ]);
      await expectRefusal(words, /bad\.config\.mjs: Unexpected number/);
    },
  );

  test.each(["unset", "set"])(
    "an upstream with TLS, on Deno, with NODE_EXTRA_CA_CERTS %s",
    async (how) => {
      const certificate = await makeCertificate();
      const tls = createTlsServer(certificate, (_, res) => void res.end());
      const target = `https://localhost:${await listen(tls)}`;
      const file = join(folder, "extra.pem");
      writeFileSync(file, (await makeCertificate()).cert);
      const variables = { NODE_EXTRA_CA_CERTS: how === "set" ? file : undefined };
      const statusWith = async (flags: string): Promise<string> => {
        const command = await start(deno, denoWith(flags, target), variables);
        const [response] = await getRaw(await command.origin());
        command.child.kill();
        await command.exit;
        return `${response.statusCode} ${String(response.headers["proxy-status"])} ${command.stderr}`;
      };
      // Deno needs `--allow-sys` only to read the certificates that the variable names. The certificate of the upstream is
      // self-signed, so a certificate error shows that the handshake got as far as that certificate.
      expect(await statusWith("--allow-net --allow-env=TERM")).toMatch(
        how === "set"
          ? /^502 fetchway; error=destination_ip_prohibited .*this process may not connect to localhost:\d+ \(is --allow-sys /
          : /^502 fetchway; error=tls_certificate_error /,
      );
      const flags = "--allow-net --allow-sys=ca --allow-env=TERM,NODE_USE_SYSTEM_CA";
      expect(await statusWith(flags)).toContain("error=tls_certificate_error");
      tls.close();
    },
  );

  test("a unix socket, on Deno", async () => {
    const path = join(folder, "upstream.sock");
    const server = createServer((_, res) => void res.end("forwarded"));
    await new Promise<void>((resolve) => server.listen(path, resolve));
    const flags = `--allow-net --allow-env=TERM --allow-read=${path} --allow-write=${path}`;
    await expectForwards(await start(deno, denoWith(flags, `unix:${path}`)));
    server.close();
  });
});
