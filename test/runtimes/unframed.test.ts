/**
 * Requests that user code constructs, as the upstream receives them through Fetchway's client and the `fetch` of each
 * runtime.
 */
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { build } from "esbuild";
import { afterAll, afterEach, beforeAll, expect, test } from "vitest";
import { toCapnp } from "../helpers/capnp.ts";
import { connect } from "../helpers/client.ts";
import { made } from "./_made.ts";
import { startProgram } from "../helpers/program.ts";
import { echo, Upstream } from "../helpers/upstream.ts";
import { until } from "../helpers/wait.ts";
import { request } from "../helpers/wire.ts";

const upstream = new Upstream();
beforeAll(() => upstream.listen());
afterEach(() => upstream.reset());
afterAll(() => upstream.stop());

const directory = mkdtempSync(join(tmpdir(), "fetchway-"));
afterAll(() => rmSync(directory, { recursive: true }));

const ROOT = new URL("../..", import.meta.url).href;

/** Runs `sendMade` as a program on the runtime. */
async function run(runtime: string, args: string[], entry: string): Promise<void> {
  const code = `
    import { createProxy } from "${ROOT}runtimes/${entry}.ts";
    import { sendMade } from "${ROOT}test/runtimes/_made.ts";
    await sendMade(createProxy, "${upstream.url}");
    console.log("sent");
  `;
  await using program = startProgram(runtime, [...args, code]);
  await program.printed(/^sent$/m);
}

async function runInWorkerd(): Promise<void> {
  const contents = `
    import { createProxy } from "./runtimes/workerd.ts";
    import { sendMade } from "./test/runtimes/_made.ts";
    const fetch = () =>
      sendMade(createProxy, "${upstream.url}").then(
        () => new Response("sent"),
        (error) => new Response(String(error), { status: 500 }),
      );
    export default { fetch };
  `;
  await build({
    stdin: { contents, resolveDir: fileURLToPath(ROOT), loader: "js" },
    outfile: join(directory, "worker.js"),
    bundle: true,
    format: "esm",
    conditions: ["workerd"],
  });
  writeFileSync(join(directory, "config.capnp"), toCapnp({ flags: [] }));
  const args = ["serve", join(directory, "config.capnp"), "--control-fd=1"];
  await using program = startProgram("workerd", args);
  const client = await connect(Number((await program.printed(/"port":\s*(\d+)/))[1]));
  client.send(request("GET", "/"));
  expect(await client.read()).toMatchObject({ status: 200, text: "sent" });
  client.leave("FIN");
}

const runtimes: Record<string, () => Promise<void>> = {
  Node: () => run("node", ["--input-type=module", "-e"], "node"),
  "the standard fetch": () => run("node", ["--input-type=module", "-e"], "fetch"),
  Bun: () => run("bun", ["-e"], "bun"),
  Deno: () => run("deno", ["eval"], "deno"),
  workerd: runInWorkerd,
};

test.each(Object.entries(runtimes))(
  "%s: a `Request` that the app constructs is sent with Content-Length, or chunked if its length is unknown",
  async (_, send) => {
    upstream.script = async (call) => {
      if (!call.target.endsWith("/seen")) return echo(call);
      const slow = call.target.replace("/seen", "/slow");
      const isHere = (): boolean => upstream.calls.some((c) => c.target === slow && c.length >= 6);
      await until(isHere, "the first half of a slow body");
      call.reply(200);
    };
    await send();
    for (const name of ["own", "fetch", "hooked"]) {
      const callOf = (kind: string): (typeof upstream.calls)[0] | undefined =>
        upstream.calls.find(({ target }) => target === `/${name}/${kind}`);
      for (const [kind, [, length]] of Object.entries(made)) {
        const call = callOf(kind);
        const framing = { kind: "length", length: length ?? call?.length };
        expect(call, `${name}/${kind}`).toMatchObject({ framing, length: framing.length });
      }
      expect(callOf("string")?.body.toString(), name).toBe("né");
      expect(callOf("blob")?.text, name).toBe("abcdef");
      expect(callOf("form")?.text, name).toContain("value");
      expect(callOf("slow"), name).toMatchObject({
        text: "first second",
        framing: { kind: "chunked" },
      });
    }
  },
);
