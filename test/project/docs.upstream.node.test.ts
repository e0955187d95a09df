/** Each patch of docs/upstream/, applied to a copy of its package, makes Fetchway's own workaround unnecessary. */
import { execFileSync } from "node:child_process";
import { cpSync, globSync, mkdtempSync, readFileSync, rmSync, symlinkSync } from "node:fs";
import type { RequestListener, Server } from "node:http";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { pathToFileURL } from "node:url";
import { afterAll, describe, expect, test } from "vitest";
import { createProxy } from "../../runtimes/node.ts";
import { toFields } from "../../runtimes/node/internals/hono.ts";
import { useApps } from "../helpers/apps.ts";
import type { Fetch } from "../helpers/serve.ts";
import { type Header, request } from "../helpers/wire.ts";

const apps = useApps();
const { upstream } = apps;
const root = join(import.meta.dirname, "../..");
const patches = join(root, "docs/upstream");
const folder = mkdtempSync(join(tmpdir(), "fetchway-upstream-"));
// The copies find their own dependencies here.
symlinkSync(join(root, "node_modules"), join(folder, "node_modules"));
afterAll(() => rmSync(folder, { recursive: true }));

/** Copies a package, and applies a patch of docs/upstream/ to the copy, if one is given. */
async function importCopy<Module>(name: string, entry: string, patch?: string): Promise<Module> {
  const copy = mkdtempSync(join(folder, "copy-"));
  cpSync(join(root, "node_modules", name), copy, { recursive: true });
  if (patch !== undefined) {
    // Outside of a repository, `git apply` patches files as `patch` does, and fails for lines that do not match.
    const env = { ...process.env, GIT_CEILING_DIRECTORIES: folder };
    execFileSync("git", ["apply", join(patches, `${patch}.diff`)], { cwd: copy, env });
  }
  return (await import(/* @vite-ignore */ pathToFileURL(join(copy, entry)).href)) as Module;
}

const LINES: Header[] = [
  ["X-Name", "a"],
  ["ETag", '"b"'],
  ["X-Name", "c"],
  ["Set-Cookie", "d=1"],
  ["Set-Cookie", "e=2"],
];

/** Sends a GET to a server. Returns the body of the answer, and its header lines without those that Node or a proxy adds. */
async function readAnswer(port: number): Promise<{ lines: string[]; text: string }> {
  const client = await apps.connect(port);
  client.send(request("GET", "/"));
  const answer = await client.read();
  const lines = answer.headers.map(([name, value]) => `${name}: ${value}`);
  const own = /^(?:connection|content-length|date|keep-alive|transfer-encoding|via): /i;
  return { lines: lines.filter((line) => !own.test(line)), text: answer.text };
}

test("each patch has a description, and names the version that package.json pins", () => {
  const { dependencies, devDependencies } = JSON.parse(
    readFileSync(join(root, "package.json"), "utf8"),
  ) as Record<"dependencies" | "devDependencies", Record<string, string>>;
  const readme = readFileSync(join(patches, "README.md"), "utf8");
  const rows = Array.from(readme.matchAll(/^\| `([\w-]+)\.diff` +\| (\S+) +\| (\S+) +\|/gm));
  const names = globSync("*.diff", { cwd: patches }).map((file) => file.replace(".diff", ""));
  expect(new Set(rows.map(([, name]) => name))).toEqual(new Set(names));
  for (const [, name, library = "", version] of rows) {
    const { [library]: pinned } = { ...dependencies, ...devDependencies };
    expect(version).toBe(pinned);
    const text = readFileSync(join(patches, `${name}.md`), "utf8");
    expect(text).toContain(`For ${library} ${version}.`);
  }
});

describe("srvx, with the patch", () => {
  type Srvx = typeof import("srvx/node");

  /**
   * Serves a proxy with a copy of srvx, and returns the answer that a client gets.
   * @param change changes the proxy's response before srvx sends it
   */
  async function ask(srvx: Srvx, change: (response: Response) => Response): Promise<unknown> {
    upstream.script = (call) => call.reply(200, LINES, "body");
    const proxy = createProxy({ target: upstream.url });
    const handler = srvx.toNodeHandler(async (each) => change(await proxy.fetch(each)));
    const answer = await readAnswer(await apps.serve("node", handler as RequestListener));
    await proxy.close();
    return answer;
  }

  /** Moves the method that srvx calls today to the symbol that the patched srvx calls instead. */
  const rename = (response: Response): Response => {
    const { _toNodeResponse: toParts } = response as Response & { _toNodeResponse: () => object };
    return Object.defineProperties(response, {
      _toNodeResponse: { value: undefined },
      [Symbol.for("srvx.toNodeResponse")]: { value: toParts },
    });
  };

  test("the new symbol has the same effect as the internal method of the published version", async () => {
    const entry = "dist/adapters/node.mjs";
    const published = await importCopy<Srvx>("srvx", entry);
    const patched = await importCopy<Srvx>("srvx", entry, "srvx-to-node-response");
    const today = await ask(published, (response) => response);
    expect(today).toEqual({ lines: LINES.map((each) => each.join(": ")), text: "body" });
    expect(await ask(patched, rename)).toEqual(today);
    expect(await ask(patched, (response) => response)).toEqual(today);
    expect(await ask(published, rename)).toEqual({
      lines: ['etag: "b"', "set-cookie: d=1", "set-cookie: e=2", "x-name: a, c"],
      text: "body",
    });
  });
});

describe("@hono/node-server, with the patch", () => {
  interface NodeServer {
    createAdaptorServer: (options: { fetch: Fetch }) => Server;
  }

  async function ask({ createAdaptorServer }: NodeServer, fields: HeadersInit): Promise<unknown> {
    // Each copy of the server replaces the global `Response` by its own.
    const server = createAdaptorServer({ fetch: () => new Response("body", { headers: fields }) });
    return readAnswer(await apps.listen(server));
  }

  test("header fields in an array of pairs are sent as separate lines, as those in a record of arrays are", async () => {
    const entry = "dist/index.mjs";
    const library = "@hono/node-server";
    const published = await importCopy<NodeServer>(library, entry);
    expect(await ask(published, LINES)).toEqual({
      lines: [
        'etag: "b"',
        "x-name: a, c",
        "set-cookie: d=1",
        "set-cookie: e=2",
        "content-type: text/plain; charset=UTF-8",
      ],
      text: "body",
    });
    const today = await ask(published, toFields(LINES.flat(), true));
    expect(today).toEqual({
      lines: ["X-Name: a", "X-Name: c", 'ETag: "b"', "Set-Cookie: d=1", "Set-Cookie: e=2"],
      text: "body",
    });
    const patched = await importCopy<NodeServer>(library, entry, "hono-header-lines");
    expect(await ask(patched, LINES)).toEqual(today);
  });
});
