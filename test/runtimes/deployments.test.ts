/** The ready-to-run entry runtimes/server.ts, the command and the examples, started as users start them. */
import { rmSync, writeFileSync } from "node:fs";
import { describe, expect, test } from "vitest";
import { connect } from "../helpers/client.ts";
import { useEcho } from "../helpers/echo.ts";
import { copyPathOf, readLinkedExample } from "../project/_example.ts";
import { mebibyte } from "../helpers/large.ts";
import { findPort } from "../helpers/serve.ts";
import { type Program, startProgram } from "../helpers/program.ts";
import { Upstream } from "../helpers/upstream.ts";
import { request } from "../helpers/wire.ts";

const upstream = useEcho();

type Env = Record<string, string>;

/** For each runtime, a function that starts a file with a default export as users do. The program prints its address. */
const runtimes: Record<string, (file: string, env: Env) => Program> = {
  node: (file, env) =>
    startProgram("srvx", ["--prod", "--port", "0", "--host", "127.0.0.1", file], env),
  bun: (file, env) => startProgram("bun", ["run", file], { PORT: "0", ...env }),
  deno: (file, env) => startProgram("deno", ["serve", "-A", "--port", "0", file], env),
};
const LISTENING = /https?:\/\/[\w.[\]:-]*:(\d+)/;

async function originOf(program: Program): Promise<string> {
  const [, port] = await program.printed(LISTENING);
  return `http://127.0.0.1:${port}`;
}

describe.each(Object.entries(runtimes))("on %s", (tool, start) => {
  test("the entry forwards to FETCHWAY_TARGET with the options of FETCHWAY_OPTIONS", async () => {
    await using program = start("runtimes/server.ts", {
      FETCHWAY_TARGET: `${upstream.url}/base`,
      FETCHWAY_OPTIONS: '{"headers":{"x-set":"1"},"timeout":5000}',
    });
    const response = await fetch(`${await originOf(program)}/a%2Fb?c`, {
      method: "PUT",
      body: "x",
    });
    expect(await response.json()).toMatchObject({
      method: "PUT",
      path: "/base/a%2Fb?c",
      headers: { "x-set": "1", "x-forwarded-for": "127.0.0.1" },
    });
  });

  test("the entry accepts a request whose Content-Length is 200 MiB", async () => {
    const upload = new Upstream();
    await upload.listen();
    try {
      await using program = start("runtimes/server.ts", { FETCHWAY_TARGET: upload.url });
      const client = await connect(Number(new URL(await originOf(program)).port));
      // Bun's server would answer a Content-Length above 128 MiB with 413 by default.
      const length = 200 * mebibyte;
      client.send(request("PUT", "/large", [["Content-Length", String(length)]]), "begun");
      const call = await upload.call();
      expect(call.get("content-length")).toBe(String(length));
      call.reply(201);
      expect((await client.read()).status).toBe(201);
      client.leave("FIN");
    } finally {
      await upload.stop();
    }
  });

  // Bun does not show the authority of an absolute-form target, so the proxy uses Host there.
  test.skipIf(tool === "bun")(
    "the entry uses the authority of an absolute-form request target, and ignores a different Host",
    async () => {
      await using program = start("runtimes/server.ts", {
        FETCHWAY_TARGET: upstream.url,
        FETCHWAY_OPTIONS: '{"changeOrigin":false}',
      });
      const client = await connect(Number(new URL(await originOf(program)).port));
      for (const [host, status] of [
        ["other.test", 200],
        ["shop.test:8080", 200],
        ["", 200],
        ["a:80:90", 400],
      ] as const) {
        client.send(request("GET", "http://shop.test:8080/x?y", [["Host", host]]));
        const answer = await client.read();
        expect(answer.status, host).toBe(status);
        if (status === 400) continue;
        expect(JSON.parse(answer.text)).toMatchObject({
          path: "/x?y",
          headers: { host: "shop.test:8080", "x-forwarded-host": "shop.test:8080" },
        });
      }
      client.leave("FIN");
    },
  );

  test.each<[string, Env, string]>([
    ["no target", {}, "FETCHWAY_TARGET is not set"],
    ["a bad target", { FETCHWAY_TARGET: "ftp://a" }, 'bad target "ftp://a": use a URL such as'],
    [
      "options that are not JSON",
      { FETCHWAY_TARGET: "http://a", FETCHWAY_OPTIONS: "{" },
      "FETCHWAY_OPTIONS is not JSON",
    ],
    ["a JSON list", { FETCHWAY_TARGET: "http://a", FETCHWAY_OPTIONS: "[]" }, "must be an object"],
    ["a bad option", { FETCHWAY_TARGET: "http://a", FETCHWAY_OPTIONS: '{"timeot":1}' }, "`timeot`"],
  ])("%s makes the entry exit with one line that says what is wrong", async (_what, env, line) => {
    await using program = start("runtimes/server.ts", env);
    await program.ended();
    expect(program.code()).toBe(2);
    const lines = program.output().trim().split("\n");
    expect(lines.filter((each) => each.startsWith("fetchway: "))).toHaveLength(1);
    expect(program.output()).toContain(line);
    expect(program.output()).not.toMatch(/^\s+at /m);
  });

  test.each(["h3", "hono"])(
    "the %s example forwards below /api and serves the rest",
    async (name) => {
      // Run a copy of the example that imports the sources and has the port of this test's upstream.
      const copy = copyPathOf(name);
      writeFileSync(copy, readLinkedExample(name).replace("http://127.0.0.1:4000", upstream.url));
      try {
        await using program = start(copy, {});
        const origin = await originOf(program);
        const response = await fetch(`${origin}/api/a%2Fb?c`);
        expect(response.headers.get("x-served-by")).toBe(name);
        expect(await response.json()).toMatchObject({ method: "GET", path: "/a%2Fb?c" });
        expect(await (await fetch(`${origin}/health`)).text()).toBe("ok");
      } finally {
        rmSync(copy);
      }
    },
  );

  test("the command forwards requests, and suggests --timeout for the unknown flag --tmeout", async () => {
    const run = tool === "deno" ? ["run", "-A", "command/main.ts"] : ["command/main.ts"];
    await using program = startProgram(tool, [
      ...run,
      upstream.url,
      "--port",
      "0",
      "--via",
      "edge",
    ]);
    const [, port] = await program.printed(/listens on http:\/\/127\.0\.0\.1:(\d+)/);
    const response = await fetch(`http://127.0.0.1:${port}/x`);
    expect(await response.json()).toMatchObject({ path: "/x", headers: { via: "1.1 edge" } });
    await using wrong = startProgram(tool, [...run, upstream.url, "--tmeout", "5"]);
    await wrong.ended();
    expect([wrong.code(), wrong.output()]).toEqual([2, expect.stringContaining("--timeout")]);
  });
});

test("the node:http example, which docs/quickstart.md shows as well, forwards requests and stops on SIGTERM", async () => {
  const copy = copyPathOf("node");
  const port = await findPort();
  const source = readLinkedExample("node").replaceAll("3000", `${port}`);
  writeFileSync(copy, source.replace("http://127.0.0.1:4000", upstream.url));
  try {
    await using program = startProgram("node", [copy]);
    const response = await fetch(`${await originOf(program)}/a%2Fb?c`);
    expect(await response.json()).toMatchObject({ method: "GET", path: "/a%2Fb?c" });
    program.signal("SIGTERM");
    await program.ended();
    expect(program.code()).toBe(0);
  } finally {
    rmSync(copy);
  }
});

describe("with wrangler", () => {
  test("the Worker of wrangler.toml can be deployed", async () => {
    await using program = startProgram("wrangler", ["deploy", "--dry-run"], {
      WRANGLER_SEND_METRICS: "false",
    });
    await program.ended();
    expect([program.code(), program.output()]).toEqual([
      0,
      expect.stringContaining("dry-run: exiting"),
    ]);
  });

  test("wrangler dev serves the Worker offline", async () => {
    await using program = startProgram(
      "wrangler",
      ["dev", "--port", "0", "--ip", "127.0.0.1", "--var", `FETCHWAY_TARGET:${upstream.url}`],
      { WRANGLER_SEND_METRICS: "false" },
    );
    const [, port] = await program.printed(/Ready on http:\/\/127\.0\.0\.1:(\d+)/);
    const response = await fetch(`http://127.0.0.1:${port}/a%2Fb?c`);
    expect(await response.json()).toMatchObject({ method: "GET", path: "/a%2Fb?c" });
  });
});
