/** The command with several upstreams: on the command line, in a config file, with --inspect and on the status page. */
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, describe, expect, test } from "vitest";
import { checkConfig } from "../../command/config/checkconfig.ts";
import { checkLine } from "../../command/config/checkline.ts";
import { capture, renderInspection } from "../../command/inspect/inspect.ts";
import { readInspected } from "../../command/inspect/inspectedrequest.ts";
import { parse } from "../../command/flags/parse.ts";
import { readRoute } from "../../command/flags/routeflag.ts";
import { isSame, toSettings } from "../../command/config/settings.ts";
import type { ReadConfig } from "../../command/config/settings.ts";
import { startProgram } from "../helpers/program.ts";
import { startUpstreams } from "../helpers/upstreams.ts";
import { until } from "../helpers/wait.ts";

const COMMAND = join(import.meta.dirname, "../../command/main.ts");
const folder = mkdtempSync(join(tmpdir(), "fetchway-upstreams-"));
afterAll(() => rmSync(folder, { recursive: true }));

const NONE = { server: {}, proxy: {}, routes: [], target: undefined };

describe("the command line", () => {
  test("several targets become one target with several upstreams, and --policy, --check and --resolve apply to it", () => {
    const line = parse(["4000", "localhost:4001", "--policy", "first", "--check=/ok", "--resolve"]);
    expect(checkLine(line).problems).toEqual([]);
    expect(line.targets).toEqual(["http://localhost:4000", "http://localhost:4001"]);
    expect(line.given.balance).toEqual({ policy: "first", check: "/ok", resolve: true });
  });

  test("a route can have several targets, separated by commas", () => {
    expect(readRoute("/api=4001,http://b --policy uri --check /ok")).toEqual({
      match: ["/api"],
      options: {
        target: ["http://localhost:4001", "http://b"],
        balance: { policy: "uri", check: { path: "/ok" } },
      },
    });
    // A comma in a path does not separate targets.
    expect(readRoute("/api=http://a/x,y")).toMatchObject({ options: { target: "http://a/x,y" } });
  });

  test.each([
    ["4000 http://me:s3cret@b", 'a target must not hold credentials; set --header "authorization'],
    ["4000 4000", "http://localhost:4000 is there twice; set its weight instead"],
    ["4000 4001/base", "all upstreams need the same base path and query"],
    ["4000 nonsense", 'bad target "nonsense": use a URL such as "http://localhost:4000"'],
    ["4000 4001 --policy none", '--policy "none": use least_conn or peak_ewma'],
    ["4000 4001 --check health", '--check "health": use a path such as "/health"'],
    ["--route /a=4000,4000", "--route /a: http://localhost:4000 is there twice"],
  ])("the line %s is refused with the fix", (args, message) => {
    const [problem = ""] = checkLine(parse(args.split(" "))).problems;
    expect(problem.slice(0, message.length)).toBe(message);
    expect(problem).not.toContain("s3cret");
  });
});

describe("a config file", () => {
  const config: ReadConfig = {
    balance: { policy: "peak_ewma" },
    routes: [
      { match: "/api", target: ["http://a", { target: "http://b", weight: 2 }] },
      { match: "/one", target: "http://c", balance: { check: { path: "/ok" } } },
    ],
  };

  test("can have several targets and `balance`, and flags take precedence over `balance`", () => {
    expect(checkConfig(config)).toEqual([]);
    const flags = { ...NONE, balance: { policy: "first" } as const };
    const [api, one] = toSettings(flags, config).routes;
    expect(api?.options.balance).toEqual({ policy: "first" });
    expect(one?.options.balance).toEqual({ policy: "first", check: { path: "/ok" } });
    // Reading the same file again gives the same settings.
    expect(isSame(toSettings(flags, structuredClone(config)).routes[0], api)).toBe(true);
  });

  test.each<[ReadConfig | object, string]>([
    [{ target: [] }, "target: give it at least one upstream"],
    [{ target: ["http://a", "http://a"] }, "target: http://a is there twice"],
    [{ target: ["4000", "4001"] }, 'target: "4000": write "http://localhost:4000"'],
    [{ target: ["http://a"], balance: { polcy: "first" } }, "balance.polcy: there is no such"],
    [{ target: ["http://a"], balance: { check: {} } }, "balance.check: path: set it"],
    [{ target: ["http://a"], balance: "first" }, "balance: use an object"],
    [
      { target: () => "http://a", balance: { policy: "first" } },
      "balance: it needs a target that is a URL, or an array of several",
    ],
  ])("a file with %j is refused with the fix", (wrong, message) => {
    const [{ text } = { text: "" }] = checkConfig(wrong);
    expect(text.slice(0, message.length)).toBe(message);
  });
});

test("--inspect shows which upstream is chosen and how, and sends nothing", async () => {
  const ask = async (config: ReadConfig, fields: string[] = []): Promise<string> => {
    const inspected = readInspected("GET http://shop.example/x", fields);
    return renderInspection(inspected, await capture(inspected, toSettings(NONE, config)));
  };
  await using upstreams = await startUpstreams(2);
  const [one, other] = upstreams.urls;
  const check = { path: "/ok", interval: 1 };
  const text = await ask({ target: upstreams.urls, balance: { policy: "first", check } });
  expect(text).toContain(`route / → ${one}, chosen by first of ${one}, ${other}\n`);
  const least = await ask({ target: upstreams.urls });
  expect(least).toContain("chosen by least_conn of");
  for (const more of [{}, { heartbeat: 1000 }]) {
    const sticky: ReadConfig = { target: upstreams.urls, balance: { policy: "sticky" }, ...more };
    const own = "fetchway=AAAAAAAAAAAAAAAAAAAAAA";
    expect(await ask(sticky, [`cookie: ${own}`])).toMatch(
      /not forwarded\n[^]*cookie: fetchway=A+ +names the upstream of the client, for this proxy/,
    );
    expect(await ask(sticky, [`cookie: a=1; ${own}`])).toMatch(
      /\n +cookie: a=1 +the client's, without the cookie that names its upstream/,
    );
  }
  expect(upstreams.paths).toEqual([]);
});

describe.each([
  ["node", [COMMAND]],
  ["bun", [COMMAND]],
  ["deno", ["run", "-A", COMMAND]],
] as const)("on %s", (tool, args) => {
  test("requests are distributed, a dead upstream is ejected, and the status page shows its health", async () => {
    await using upstreams = await startUpstreams(2);
    const [one = "", other = ""] = upstreams.urls;
    const dead = "http://127.0.0.1:1";
    const flags = ["--port=0", "--admin=0", "--log=json", "--policy", "round_robin"];
    const targets = [one, other, dead, `--route=/api=${other},${one} --route-name both`];
    await using program = startProgram(tool, [...args, ...targets, ...flags]);
    const [, origin = ""] = await program.printed(/listens on (http:\S+) /);
    const [, admin = ""] = await program.printed(/status page: (http:[^\s"]+?)\/?"/);
    expect(program.output()).toContain(`${one}, ${other}, ${dead}`);
    const answers: string[] = [];
    for (let n = 0; n < 30; n++) {
      const response = await fetch(`${origin}/${n}`);
      expect(response.status).toBe(200);
      answers.push(await response.text());
    }
    expect(new Set(answers)).toEqual(new Set(["0", "1"]));
    expect(await (await fetch(`${origin}/api/x`)).text()).toMatch(/^[01]$/);
    const stats = (await (await fetch(`${admin}/stats`)).json()) as {
      upstreams: {
        name: string;
        health?: string;
        requests: number;
        failed: number;
        recentFailed: number;
        condition: object;
      }[];
      overall: object;
    };
    const health = Object.fromEntries(stats.upstreams.map((each) => [each.name, each.health]));
    expect(health).toEqual({ [one]: "up", [other]: "up", [dead]: "ejected" });
    expect(stats.overall).toEqual({ state: "degraded", reasons: ["1 of 3 upstreams down"] });
    expect(stats.upstreams.find((each) => each.name === dead)?.condition).toEqual({
      state: "ejected",
      reason: "5 failures in a row, last: connection_refused",
      since: expect.any(Number) as number,
    });
    // Each of the five requests that failed at the dead upstream was sent to another one, so no client got an error.
    const counted = stats.upstreams.find((each) => each.name === dead);
    expect(counted).toMatchObject({ requests: 5, failed: 5, recentFailed: 5 });
    const answered = stats.upstreams.filter((each) => each.name !== dead);
    expect(answered.reduce((sum, each) => sum + each.requests, 0)).toBe(31);
    const metrics = await (await fetch(`${admin}/metrics`)).text();
    expect(metrics).toContain(`fetchway_upstream_requests_total{upstream="${dead}"} 5\n`);
    expect(metrics).toContain(`fetchway_upstream_failures_total{upstream="${dead}"} 5\n`);
    expect(metrics).toContain(`fetchway_upstream_failures_total{upstream="${one}"} 0\n`);
    expect(metrics).toContain(`fetchway_upstream_up{upstream="${one}"} 1\n`);
    expect(metrics).toContain(`fetchway_upstream_up{upstream="${dead}"} 0\n`);
    const output = (): string => program.output();
    await until(() => output().includes(`"upstream":"${dead}","state":"ejected"`), "the ejection");
    expect(output().match(/"state":"ejected"/g)).toHaveLength(1);
    expect(output()).toContain('"reason":"5 failures in a row, last: connection_refused"');
    await until(() => program.output().includes('"path":"/api/x","route":"both"'), "the log");
  });
});

test("a change of the config file adds an upstream, without a failed request", async () => {
  await using upstreams = await startUpstreams(2);
  const path = join(folder, "several.json");
  const write = (urls: readonly string[]): void => {
    writeFileSync(path, JSON.stringify({ target: urls, balance: { policy: "round_robin" } }));
  };
  const [one = "", other = ""] = upstreams.urls;
  write([one]);
  const flags = ["--port=0", "--log=off", "--config", path];
  await using program = startProgram("node", [COMMAND, ...flags]);
  const [, origin = ""] = await program.printed(/listens on (http:\S+) /);
  const ask = async (): Promise<string> => (await fetch(`${origin}/`)).text();
  expect([await ask(), await ask()]).toEqual(["0", "0"]);
  write([one, other]);
  await program.printed(/has been reloaded/);
  expect(new Set([await ask(), await ask(), await ask(), await ask()])).toEqual(
    new Set(["0", "1"]),
  );
});
