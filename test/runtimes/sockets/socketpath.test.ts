/** The paths of Unix domain sockets and of named pipes as targets, and their length. */
import { mkdtempSync, rmSync } from "node:fs";
import { createServer } from "node:http";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, describe, expect, test } from "vitest";
import { createProxy, createTransport, proxyFetch } from "../../../runtimes/node.ts";
import { checkSocketPath } from "../../../runtimes/sockets/socketpath.ts";
import { createProxy as createUndiciProxy } from "../../../runtimes/undici.ts";
import { balance } from "../../../src/upstreams/balance.ts";
import { EVALUATE, startProgram } from "../../helpers/program.ts";

const folder = mkdtempSync(join(tmpdir(), "fetchway-"));
const server = createServer((_, res) => void res.end("over the socket"));
const LIMIT = process.platform === "linux" ? 107 : 103;
/** Returns a path in the folder, with this number of bytes. */
const pathOf = (bytes: number): string => join(folder, "é".repeat(10)).padEnd(bytes - 10, "x");
const longest = pathOf(LIMIT);
const tooLong = pathOf(LIMIT + 1);

afterAll(() => {
  server.close().closeAllConnections();
  rmSync(folder, { recursive: true });
});

test("the path of a Unix socket may be as long as the system's limit in bytes", async () => {
  expect([Buffer.byteLength(longest), checkSocketPath(longest)]).toEqual([LIMIT, undefined]);
  await new Promise<void>((resolve) => server.listen(longest, resolve));
  const response = await proxyFetch(new Request("http://a.test/"), `unix:${longest}`);
  expect(await response.text()).toBe("over the socket");
});

const TOO_LONG = `use a shorter path: it has ${LIMIT + 1} bytes, and the address of a socket takes ${LIMIT}`;

test("each option for the path of a Unix socket refuses a path above the system's limit", async () => {
  const target = `unix:${tooLong}`;
  const ofTarget = `fetchway: bad target ${JSON.stringify(target)}: ${TOO_LONG}`;
  const ofPool = `fetchway: bad option \`socketPath\`: ${TOO_LONG}`;
  const url = "http://a.test";
  expect(() => createProxy({ target })).toThrow(ofTarget);
  expect(() => createProxy({ target: { url, socketPath: tooLong } })).toThrow(ofTarget);
  expect(() => createProxy({ target: balance([url, target]) })).toThrow(ofTarget);
  expect(() => createProxy({ target: url, pool: { socketPath: tooLong } })).toThrow(ofPool);
  expect(() => createTransport({ socketPath: tooLong })).toThrow(ofPool);
  expect(() => createUndiciProxy({ target: url, pool: { socketPath: tooLong } })).toThrow(ofPool);
  await expect(proxyFetch(new Request(url), target)).rejects.toThrow(ofTarget);
});

test.each(["bun", "deno"] as const)(
  "on %s, a path of a Unix socket above the system's limit is refused as well",
  async (runtime) => {
    const code = `
    import { createProxy } from "#fetchway";
    try { createProxy({ target: ${JSON.stringify(`unix:${tooLong}`)} }); } catch (error) { console.log(error.message); }
  `;
    await using program = startProgram(runtime, [...EVALUATE[runtime], code]);
    await program.ended();
    expect(program.output()).toContain(TOO_LONG);
  },
);

describe("named pipes of Windows", () => {
  // On other systems, this is the name of a file in the working directory, so the test runs there as well.
  const pipe = "\\\\.\\pipe\\app";

  test.each([
    { target: `unix:${pipe}` },
    { target: "http://a.test", pool: { socketPath: pipe } },
    { target: { url: "http://a.test", socketPath: pipe } },
  ])("the proxy connects to the pipe with %j", async (options) => {
    const code = `
      import { createServer } from "node:http";
      import process from "node:process";
      import { createProxy } from ${JSON.stringify(new URL("../../../runtimes/node.ts", import.meta.url).href)};
      const { pipe, options } = JSON.parse(process.env.SETUP);
      const server = createServer((_, res) => void res.end("from the pipe"));
      await new Promise((resolve) => server.listen(pipe, resolve));
      console.log(await (await createProxy(options).fetch(new Request("http://x/"))).text());
      server.close().closeAllConnections();
      process.exit();
    `;
    const setup = { SETUP: JSON.stringify({ pipe, options }) };
    await using program = startProgram("node", [...EVALUATE.node, code], setup, folder);
    await program.ended();
    expect(program.output()).toBe("from the pipe\n");
  });
});
