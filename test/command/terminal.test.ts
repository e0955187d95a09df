/** SIGHUP stops the command if its terminal has closed; otherwise the command reads its files again. */
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { connect } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import process from "node:process";
import { isatty } from "node:tty";
import { afterAll, afterEach, beforeEach, describe, expect, test, vi } from "vitest";
import { handleSignals } from "../../command/serve/signals.ts";
import { programs as runs, upstream } from "./_command.ts";
import { type Program, startProgram } from "../helpers/program.ts";
import { until } from "../helpers/wait.ts";

vi.mock("node:tty", { spy: true });

const folder = mkdtempSync(join(tmpdir(), "fetchway-"));
afterAll(() => rmSync(folder, { recursive: true }));

const programs: Program[] = [];
// The command runs in its own session, so it may outlive the program that owns the terminal.
afterEach(() => {
  for (const program of programs.splice(0)) {
    const [, pid] = /^process (\d+)$/m.exec(program.output()) ?? [];
    if (pid === undefined || /^exit code /m.test(program.output())) continue;
    try {
      process.kill(Number(pid), "SIGKILL");
    } catch {
      // The process has ended already.
    }
  }
});

function startInTerminal(...command: readonly string[]): Program {
  const program = startProgram("bun", ["test/command/_terminal.program.ts", ...command]);
  programs.push(program);
  return program;
}

/** Starts the command in a terminal. */
function start(runtime: keyof typeof runs, ...args: readonly string[]): Program {
  return startInTerminal(...runs[runtime], "command/main.ts", "--port=0", ...args);
}

function saveConfig(): string {
  const path = join(folder, "config.json");
  writeFileSync(path, JSON.stringify({ target: upstream.url }));
  return path;
}

async function isServing(origin: string): Promise<boolean> {
  const socket = connect(Number(new URL(origin).port), "127.0.0.1");
  const isOpen = await new Promise<boolean>((resolve) => {
    socket.on("connect", () => resolve(true)).on("error", () => resolve(false));
  });
  socket.destroy();
  return isOpen;
}

const listens = /listens on (http:\S+) /;

describe.each(["node", "bun", "deno"] as const)("on %s", (runtime) => {
  test("on a terminal, the command says that Ctrl+C stops it", async () => {
    await start(runtime, "--demo").printed(/Try it from another terminal; Ctrl\+C stops it\./);
  });

  test.each([
    ["a target", () => [upstream.url]],
    ["--config", () => [`--config=${saveConfig()}`]],
  ])("when its terminal closes, the command lets running requests end: %s", async (_, args) => {
    let finish: (() => void) | undefined;
    upstream.handler = (_request, res) => {
      res.write("begun, ");
      finish = () => res.end("and whole");
    };
    await using program = start(runtime, ...args());
    const [, origin = ""] = await program.printed(listens);
    const response = await fetch(origin);
    program.signal("SIGUSR2");
    while (await isServing(origin));
    finish?.();
    expect(await response.text()).toBe("begun, and whole");
    await program.printed(/exit code 0\n/);
  });
});

test("when its terminal closes, the command also stops its workers", async () => {
  await using program = start("node", `--config=${saveConfig()}`, "--workers=2");
  const [, origin = ""] = await program.printed(listens);
  await program.printed(/ {2}2 workers/);
  program.signal("SIGUSR2");
  await program.printed(/exit code 0\n/);
  expect(await isServing(origin)).toBe(false);
});

test.each([
  ["stdout", "2>"],
  ["stderr", ">"],
])("with workers, %s has colours if it alone leads to the terminal", async (name, redirection) => {
  upstream.handler = (_, res) => res.end("whole");
  const file = join(folder, `not-${name}`);
  const line = `unset NO_COLOR FORCE_COLOR CI; TERM=xterm-256color exec "$0" "$@" ${redirection} ${file}`;
  const args = ["--port=0", "--workers=2", "--log=pretty", upstream.url, "--route=/dead=:1"];
  const command = [...runs.node, "command/main.ts", ...args];
  await using program = startInTerminal("sh", "-c", line, ...command);
  const read = (): string => readFileSync(file, { encoding: "utf8", flag: "a+" });
  const all = (): string => program.output() + read();
  await until(() => listens.test(all()), "the start");
  const [, origin = ""] = listens.exec(all()) ?? [];
  for (const path of ["/", "/dead"]) await (await fetch(origin + path)).text();
  await until(
    () => [/GET.* 5 B/, /GET.* \/dead .*502/].every((each) => each.test(all())),
    "the lines",
  );
  expect(program.output()).toContain("\u001b[1mGET\u001b[22m");
  expect(read()).toContain(" GET ");
});

test("in a terminal that stays open, SIGHUP makes the command read its files again", async () => {
  await using program = start("node", `--config=${saveConfig()}`);
  const [, origin = ""] = await program.printed(listens);
  program.signal("SIGUSR1");
  await program.printed(/config\.json has been reloaded/);
  expect(await isServing(origin)).toBe(true);
});

test("a command that does not use its terminal keeps running when the terminal closes", async () => {
  const output = join(folder, "output");
  // As under nohup, no stream of the command is its terminal. The command still gets SIGHUP when the terminal closes.
  const line = `exec "$0" "$@" < /dev/null > ${output} 2>&1`;
  const command = [...runs.node, "command/main.ts", "--port=0", `--config=${saveConfig()}`];
  await using program = startInTerminal("sh", "-c", line, ...command);
  const read = (): string => readFileSync(output, { encoding: "utf8", flag: "a+" });
  await until(() => listens.test(read()), "the start");
  program.signal("SIGUSR2");
  await until(() => read().includes("config.json has been reloaded"), "the reload");
  const [, origin = ""] = listens.exec(read()) ?? [];
  expect(await isServing(origin)).toBe(true);
  expect(program.output()).not.toContain("exit code");
});

describe("SIGHUP", () => {
  const names = ["SIGHUP", "SIGBREAK", "SIGTERM", "SIGINT"] as const;
  const listeners = names.map((name) => [name, process.listeners(name)] as const);
  let orders: string[];
  beforeEach(() => {
    orders = [];
    vi.useFakeTimers();
  });
  afterEach(() => {
    vi.useRealTimers();
    vi.mocked(isatty).mockReset();
    for (const [name, before] of listeners) {
      for (const listener of process.listeners(name)) {
        if (!before.includes(listener)) process.off(name, listener);
      }
    }
  });
  const emit = (name: NodeJS.Signals): void => void process.emit(name);
  function obey(platform: NodeJS.Platform): void {
    handleSignals(
      {
        stop: () => orders.push("stop"),
        end: (_, code) => orders.push(`end ${code}`),
        reload: () => orders.push("reload"),
      },
      platform,
    );
  }

  test("the command stops if a shell sends it SIGHUP before the terminal closes", () => {
    vi.mocked(isatty).mockReturnValue(true);
    obey("linux");
    emit("SIGHUP");
    vi.advanceTimersByTime(200);
    vi.mocked(isatty).mockReturnValue(false);
    vi.runAllTimers();
    expect(orders).toEqual(["stop"]);
  });

  test("SIGHUP does not count as a second signal: a command that is stopping ignores it", () => {
    vi.mocked(isatty).mockReturnValue(true);
    obey("linux");
    emit("SIGHUP");
    emit("SIGTERM");
    vi.runAllTimers();
    vi.mocked(isatty).mockReturnValue(false);
    emit("SIGHUP");
    vi.runAllTimers();
    expect(orders).toEqual(["stop"]);
    emit("SIGTERM");
    expect(orders).toEqual(["stop", "end 143"]);
  });

  test.each(["SIGHUP", "SIGBREAK"] as const)(
    "on Windows, the signal %s stops the command",
    (signal) => {
      vi.mocked(isatty).mockReturnValue(false);
      obey("win32");
      emit(signal);
      emit(signal);
      expect(orders).toEqual(["stop"]);
    },
  );
});
