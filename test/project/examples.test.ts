/** The examples of interceptors and of a transport, started as users start them. */
import { createHmac } from "node:crypto";
import { rmSync, writeFileSync } from "node:fs";
import { afterAll, afterEach, beforeAll, describe, expect, test } from "vitest";
import { copyPathOf, readLinkedExample } from "./_example.ts";
import { findPort } from "../helpers/serve.ts";
import { type Program, startProgram } from "../helpers/program.ts";
import { Upstream } from "../helpers/upstream.ts";

const upstream = new Upstream();
beforeAll(() => upstream.listen());
afterEach(() => upstream.reset());
afterAll(() => upstream.stop());

const runtimes: Record<string, (file: string) => Program> = {
  node: (file) => startProgram("srvx", ["--prod", "--port", "0", "--host", "127.0.0.1", file]),
  bun: (file) => startProgram("bun", ["run", file], { PORT: "0" }),
  deno: (file) => startProgram("deno", ["serve", "-A", "--port", "0", file]),
};

/** Starts a copy of an example with other addresses. The copy imports the sources. */
async function run(
  name: string,
  start: (file: string) => Program,
  use: (origin: string, program: Program) => Promise<void>,
  port?: number,
): Promise<void> {
  const copy = copyPathOf(name);
  const source = readLinkedExample(name).replaceAll("http://127.0.0.1:4000", upstream.url);
  writeFileSync(
    copy,
    source.replace("listen(3000)", `listen(${port}, () => console.log("http://:${port}"))`),
  );
  try {
    await using program = start(copy);
    const [, at] = await program.printed(/https?:\/\/[\w.[\]-]*:(\d+)/);
    await use(`http://127.0.0.1:${at}`, program);
  } finally {
    rmSync(copy);
  }
}

describe.each(Object.entries(runtimes))("on %s", (_, start) => {
  test("sign.ts signs each attempt", () =>
    run("sign", start, async (origin) => {
      expect((await fetch(`${origin}/a?b`, { method: "PUT", body: "x" })).status).toBe(200);
      const call = await upstream.call();
      const date = call.get("date") ?? "";
      expect(Date.parse(date)).not.toBeNaN();
      const hmac = createHmac("sha256", "for development only").update(`PUT /a?b\n${date}`);
      expect(call.get("x-signature")).toBe(hmac.digest("hex"));
    }));

  test("log.ts writes a line for each attempt, including failed attempts", () =>
    run("log", start, async (origin, program) => {
      // The upstream resets the kept connection when /b arrives on it, so /b needs a second attempt.
      upstream.script = (call) =>
        call.target === "/b" && call.link.calls.length > 1 ? call.reset() : call.reply(201);
      expect((await fetch(`${origin}/a`)).status).toBe(201);
      expect((await fetch(`${origin}/b`)).status).toBe(201);
      await program.printed(/\/b → 201 \(\d+ ms\)$/m);
      const lines = program.output().match(/^GET .* → .*(?= \(\d+ ms\)$)/gm);
      expect(lines).toEqual([
        `GET ${upstream.url}/a → 201`,
        `GET ${upstream.url}/b → connection_terminated: ${new URL(upstream.url).host} reset the connection (see its log)`,
        `GET ${upstream.url}/b → 201`,
      ]);
    }));

  test("prometheus.ts serves metrics about the proxy's requests and connections", () =>
    run("prometheus", start, async (origin) => {
      for (let turn = 0; turn < 2; turn++) expect((await fetch(`${origin}/a`)).status).toBe(200);
      const text = await (await fetch(`${origin}/metrics`)).text();
      for (const line of text.trimEnd().split("\n")) {
        expect(line).toMatch(
          /^# TYPE \w+ (?:counter|gauge)$|^\w+(?:\{\w+="[^"]*"(?:,\w+="[^"]*")*\})? \d+$/,
        );
      }
      expect(text).toContain("\nfetchway_upstream_requests_total 2\n");
      expect(text).toContain("\nfetchway_upstream_connections_created_total 1\n");
      const labels = `upstream="${upstream.url}",state="free"`;
      expect(text).toContain(`\nfetchway_upstream_connections{${labels}} 1\n`);
    }));

  test("cache.ts serves a response from memory only if the response may be stored", () =>
    run("cache", start, async (origin) => {
      let count = 0;
      upstream.script = (call) => {
        const allowed: [string, string][] = [["Cache-Control", "public, max-age=60"]];
        if (call.target === "/private") allowed.push(["Set-Cookie", "a=1"]);
        call.reply(200, call.target === "/silent" ? [] : allowed, `answer ${++count}`);
      };
      const text = async (path: string, headers = {}): Promise<string> =>
        (await fetch(origin + path, { headers })).text();
      expect([await text("/a"), await text("/a")]).toEqual(["answer 1", "answer 1"]);
      expect(await text("/a", { authorization: "Bearer x" })).toBe("answer 2");
      expect([await text("/private"), await text("/private")]).toEqual(["answer 3", "answer 4"]);
      expect([await text("/silent"), await text("/silent")]).toEqual(["answer 5", "answer 6"]);
      expect(await text("/a")).toBe("answer 1");
    }));
});

test("transport.ts sends through Node's own client", async () => {
  const port = await findPort();
  const node = (file: string): Program => startProgram("node", [file]);
  await run(
    "transport",
    node,
    async (origin) => {
      upstream.script = async (call) => {
        await call.done;
        call.reply(201, [["X-Id", "7"]], `${call.method} ${call.target} ${call.text}`);
      };
      const answer = await fetch(`${origin}/a%2Fb?c`, { method: "PUT", body: "x".repeat(100_000) });
      expect([answer.status, answer.headers.get("x-id")]).toEqual([201, "7"]);
      expect(await answer.text()).toBe(`PUT /a%2Fb?c ${"x".repeat(100_000)}`);
      expect((await fetch(`${origin}/a`, { method: "HEAD" })).status).toBe(201);
      upstream.script = (call) => call.reset();
      expect((await fetch(`${origin}/a`)).status).toBe(502);
    },
    port,
  );
});
