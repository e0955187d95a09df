import { createServer } from "node:http";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { renderStats } from "../../command/serve/printstats.ts";
import { listen } from "../helpers/serve.ts";
import { startProgram } from "../helpers/program.ts";
import { until, within } from "../helpers/wait.ts";

const upstream = createServer((_, res) => res.end("ok"));
let target = "";
beforeAll(async () => {
  target = `http://127.0.0.1:${await listen(upstream)}`;
});
afterAll(() => upstream.close().closeAllConnections());

test("the counters of --stats are formatted as text for people", () => {
  expect(
    renderStats({
      created: 3,
      closed: 2,
      failed: 1,
      timedOut: 0,
      requests: 10,
      requestsPerSocket: 10 / 3,
      tunnels: 0,
      version: 9,
      origins: { "http://a": { inUse: 1, free: 2, waiting: 0, tunnels: 0 } },
    }),
  ).toBe(
    [
      "connections: 3 created, 2 closed, 1 failed, 0 timed out",
      "requests: 10, 3.3 to a connection",
      "http://a: 1 in use, 2 free, 0 waiting",
    ].join("\n"),
  );
});

describe.each([
  ["node", ["command/main.ts"]],
  ["bun", ["command/main.ts"]],
  ["deno", ["run", "-A", "command/main.ts"]],
])("on %s", (tool, args) => {
  const start = async (...more: string[]): Promise<[ReturnType<typeof startProgram>, string]> => {
    const program = startProgram(tool, [...args, target, "--port=0", ...more]);
    const [, origin = ""] = await program.printed(/listens on (http:\S+) /);
    return [program, origin];
  };

  test("SIGUSR1 prints the counters, and the program starts no inspector", async () => {
    const [program, origin] = await start();
    await using _ = program;
    for (let count = 1; count <= 2; count++) {
      expect(await (await fetch(origin)).text()).toBe("ok");
      program.signal("SIGUSR1");
      await program.printed(new RegExp(`requests: ${count}, ${count} to a connection\n`));
    }
    expect(program.output()).toContain("fetchway: connections: 1 created, 0 closed");
    // Deno always starts its inspector at this signal, some time after it has told the program.
    if (tool !== "deno") expect(program.output()).not.toMatch(/[Dd]ebugger|inspector/);
    expect(program.code()).toBeUndefined();
  });

  test.each([true, false])("--stats=%j decides if counters are printed at exit", async (stats) => {
    const [program, origin] = await start(`--stats=${stats}`);
    await using _ = program;
    expect(await (await fetch(origin)).text()).toBe("ok");
    program.signal("SIGTERM");
    await within(program.ended(), "the end");
    await until(() => program.code() === 0, "a good end");
    expect(program.output().includes("requests: 1, 1 to a connection\n")).toBe(stats);
  });
});
