/** `--mirror`, and the option of a config file with the same effect. */
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, afterEach, beforeAll, expect, test } from "vitest";
import { checkConfig } from "../../command/config/checkconfig.ts";
import { normalizeConfig } from "../../command/config/normalizeconfig.ts";
import { Upstream } from "../helpers/upstream.ts";
import { command } from "./_command.ts";

const folder = mkdtempSync(join(tmpdir(), "mirror-"));
const target = new Upstream();
const mirror = new Upstream();

beforeAll(() => Promise.all([target.listen(), mirror.listen()]));
afterEach(() => Promise.all([target.reset(), mirror.reset()]));
afterAll(async () => {
  rmSync(folder, { recursive: true });
  await Promise.all([target.stop(), mirror.stop()]);
});

test("--mirror sends a copy of each request to the URL", async () => {
  const proxy = command(`${target.url} --mirror ${mirror.url} --port 0`);
  const origin = await proxy.origin();
  expect((await fetch(`${origin}/a?b`)).status).toBe(200);
  expect((await mirror.call()).target).toBe("/a?b");
  await proxy.kill();
});

test("a config file sets the maximum length of the bodies that are copied to the mirror", async () => {
  const path = join(folder, "config.json");
  const config = { target: target.url, mirror: { target: mirror.url, maxBody: "1kb" } };
  writeFileSync(path, JSON.stringify({ ...config, server: { port: 0 } }));
  const proxy = command(`--config ${path}`);
  const origin = await proxy.origin();
  for (const [url, length] of [
    ["/long", 1025],
    ["/short", 1024],
  ] as const) {
    const init = { method: "POST", body: "x".repeat(length) };
    expect((await fetch(origin + url, init)).status).toBe(200);
  }
  expect((await mirror.call()).target).toBe("/short");
  await proxy.kill();
});

test.each([
  ["http://a.test/base", 'mirror: use an origin such as "http://127.0.0.1:4001"'],
  [{ sample: 0.5 }, "mirror: it needs a `target`"],
  [{ target: "http://a.test", sample: 2 }, "mirror: sample: use a number above 0, up to 1"],
  [{ target: "http://a.test", maxBody: "x" }, "mirror: maxBody: use a number of bytes"],
  [{ target: "http://a.test", smaple: 1 }, "mirror: smaple: there is no such option"],
])("a config file with mirror: %j is refused with the fix", (value, message) => {
  const config = normalizeConfig({ target: "http://127.0.0.1:4000", mirror: value });
  const [{ text } = { text: "" }, ...others] = checkConfig(config);
  expect(text.slice(0, message.length)).toBe(message);
  expect(others).toEqual([]);
});
