/** `--first-byte-timeout` and `--heartbeat`, and the options of a config file with the same effect. */
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, afterEach, beforeAll, expect, test } from "vitest";
import { checkConfig } from "../../command/config/checkconfig.ts";
import { checkLine } from "../../command/config/checkline.ts";
import { normalizeConfig } from "../../command/config/normalizeconfig.ts";
import { parse } from "../../command/flags/parse.ts";
import { Upstream } from "../helpers/upstream.ts";
import { until, within } from "../helpers/wait.ts";
import { chunk, lastChunk } from "../helpers/wire.ts";
import { command } from "./_command.ts";

const HEAD =
  "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n";
const first = new Upstream();
const second = new Upstream();
const folder = mkdtempSync(join(tmpdir(), "fetchway-streams-"));
beforeAll(() => Promise.all([first.listen(), second.listen()]));
afterEach(() => Promise.all([first.reset(), second.reset()]));
afterAll(async () => {
  rmSync(folder, { recursive: true });
  await Promise.all([first.stop(), second.stop()]);
});

test("--first-byte-timeout moves a stalled stream to the next upstream, and --heartbeat sends comments", async () => {
  first.script = (call) => call.write(HEAD);
  second.script = (call) => call.write(HEAD, chunk("data: 1\n\n"));
  const flags = "--policy first --first-byte-timeout 2s --heartbeat 30ms --log json --port 0";
  const proxy = command(`${first.url} ${second.url} ${flags}`);
  const [, origin = ""] = await proxy.says(/"message":"fetchway listens on (http:[^ "]+)/);
  const response = await fetch(origin);
  const decoder = new TextDecoder();
  let text = "";
  for await (const bytes of response.body ?? []) {
    text += decoder.decode(bytes, { stream: true });
    if (text.endsWith(":\n\n:\n\n")) second.calls[0]?.write(lastChunk);
  }
  expect(text).toMatch(/^data: 1\n\n(?::\n\n){2,}$/);
  await proxy.says(/"attempts":2/);
  await within((await first.call()).link.closed, "the stalled connection closed");
});

test("a config file sets both options, and a POST is sent again only in a route whose `retry` allows it", async () => {
  first.script = (call) => call.write(HEAD, lastChunk);
  const file = join(folder, "fetchway.config.json");
  const target = [first.url, second.url];
  const routes = [
    { match: "/post", target, retry: { methods: ["POST"] } },
    { match: "/", target },
  ];
  const config = {
    firstByteTimeout: "10s",
    heartbeat: 15_000,
    balance: { policy: "first" },
    routes,
  };
  writeFileSync(file, JSON.stringify(config));
  const proxy = command(`--config ${file} --log off --port 0`);
  const origin = await proxy.origin();
  const post = { method: "POST", body: "text" };
  const moved = await fetch(`${origin}/post`, post);
  expect([moved.status, await moved.text()]).toEqual([200, "text"]);
  expect((await fetch(origin, post)).status).toBe(502);
  await until(() => first.calls.length === 2, "both requests");
  expect(second.calls).toHaveLength(1);
});

test.each([
  ["--first-byte-timeout soon", '--first-byte-timeout "soon": use milliseconds, or a duration'],
  ["--heartbeat=-1", '--heartbeat "-1": use milliseconds, or a duration'],
  ["--first-byte-timout 5s", "there is no --first-byte-timout: use --first-byte-timeout"],
])("the flag %s is refused with a message that says how to fix it", (flag, message) => {
  const [problem = ""] = checkLine(parse(["4000", ...flag.split(" ")])).problems;
  expect(problem.slice(0, message.length)).toBe(message);
});

test.each([
  [{ heartbeat: "soon" }, "heartbeat: use whole milliseconds"],
  [{ heartbeat: true }, "heartbeat: use whole milliseconds"],
  [{ firstByteTimeout: -5 }, "firstByteTimeout: use whole milliseconds"],
  [
    { firstByteTimout: 5000 },
    "firstByteTimout: there is no such option; did you mean `firstByteTimeout`?",
  ],
])("the config %j is refused with a message that says how to fix it", (config, message) => {
  const [fault] = checkConfig(normalizeConfig(config));
  expect(fault?.text.slice(0, message.length)).toBe(message);
});

test.each([{ heartbeat: 0 }, { heartbeat: "15s", firstByteTimeout: "5s" }])(
  "the config %j is valid",
  (config) => {
    expect(checkConfig(normalizeConfig({ target: "http://localhost:4000", ...config }))).toEqual(
      [],
    );
  },
);
