/** Targets that are the command's own server. */
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, describe, expect, test } from "vitest";
import type { RouteOptions } from "../../command/flags/severalupstreams.ts";
import { refuseOwnAddress } from "../../command/serve/ownaddress.ts";
import { findPort } from "../helpers/serve.ts";
import { until } from "../helpers/wait.ts";
import { command } from "./_command.ts";

const folder = mkdtempSync(join(tmpdir(), "own-"));
afterAll(() => rmSync(folder, { recursive: true }));

/** Checks a route to a target, for a server on a host with port 3100. */
function check(host: string, options: RouteOptions, port = 3100): void {
  refuseOwnAddress({ host, port }, [{ match: ["/"], options }]);
}

describe("`refuseOwnAddress` refuses", () => {
  test.each<[string, RouteOptions["target"]]>([
    ["127.0.0.1", "http://localhost:3100"],
    ["127.0.0.1", "http://127.0.0.1:3100/base?query"],
    ["127.0.0.1", "http://0.0.0.0:3100"],
    ["::1", "https://[::1]:3100"],
    ["::1", "http://[::]:3100"],
    ["localhost", "http://[::1]:3100"],
    ["0.0.0.0", "http://127.0.0.2:3100"],
    ["::", "http://127.0.0.1:3100"],
    ["::", "http://[::1]:3100"],
    ["192.0.2.1", "http://192.0.2.1:3100"],
    ["shop.test", "http://shop.test:3100"],
    ["unix:/run/own.sock", "unix:/run/own.sock"],
    ["127.0.0.1", new URL("http://127.0.0.1:3100")],
    ["127.0.0.1", { url: "http://a.test:3100", address: "127.0.0.1" }],
    ["127.0.0.1", ["http://127.0.0.1:3101", { target: "http://127.0.0.1:3100", weight: 2 }]],
  ])("a server on %s, with the target %s", (host, target) => {
    expect(() => check(host, { target })).toThrow(
      /^the target \S+ is the address of this proxy itself: use --port/,
    );
  });

  test("a mirror that is the server itself", () => {
    const target = "http://127.0.0.1:3101";
    const own = "http://127.0.0.1:3100";
    expect(() => check("127.0.0.1", { target, mirror: own })).toThrow("of this proxy itself");
    expect(() => check("::", { target, mirror: { target: own } })).toThrow("of this proxy itself");
  });

  test("a target without a port, if the server has the default port of the scheme", () => {
    expect(() => check("0.0.0.0", { target: "http://127.0.0.1" }, 80)).toThrow(
      "of this proxy itself",
    );
    expect(() => check("0.0.0.0", { target: "https://127.0.0.1" }, 443)).toThrow(
      "of this proxy itself",
    );
    expect(() => check("0.0.0.0", { target: "https://127.0.0.1" }, 80)).not.toThrow();
  });
});

describe("`refuseOwnAddress` accepts", () => {
  test.each<[string, RouteOptions["target"]]>([
    ["127.0.0.1", "http://127.0.0.1:3101"],
    ["127.0.0.1", "http://127.0.0.2:3100"],
    ["127.0.0.1", "http://[::1]:3100"],
    ["0.0.0.0", "http://[::1]:3100"],
    ["0.0.0.0", "http://shop.test:3100"],
    ["192.0.2.1", "http://localhost:3100"],
    ["127.0.0.1", () => "http://127.0.0.1:3100"],
    ["127.0.0.1", { fetch: () => new Response(), url: "http://127.0.0.1:3100" }],
    ["127.0.0.1", "unix:/run/app.sock"],
  ])("a server on %s, with the target %s", (host, target) => {
    expect(() => check(host, { target })).not.toThrow();
  });
});

test("the command refuses its own port as the target, also in a route", async () => {
  const port = await findPort();
  expect(await command(`${port} --port ${port}`).refusal()).toBe(
    `fetchway: the target http://localhost:${port} is the address of this proxy itself: use --port with another, or name another target\n`,
  );
  expect(
    await command(
      `--demo --route /a=http://127.0.0.1:${port} --host 0.0.0.0 --port ${port}`,
    ).refusal(),
  ).toContain("of this proxy itself");
});

test.each([
  ["keeps the port", "", "config.json is not applied: the routes stay as they are"],
  ["names another port", "", "config.json is not applied: the routes stay as they are"],
  ["names another port", "--workers 2", "did not start: the workers stay as they are"],
])(
  "a reload is refused if the file makes the command its own target and %s, and the routes stay: %s",
  async (title, flags, result) => {
    const port = await findPort();
    const path = join(folder, "config.json");
    const write = (target: string, own: number): void =>
      writeFileSync(path, JSON.stringify({ target, server: { port: own } }));
    write("http://127.0.0.1:9", port);
    const proxy = command(`--config ${path} ${flags}`);
    await proxy.origin();
    // The command listens on the port of its start until it is restarted.
    write(`http://127.0.0.1:${port}`, title === "keeps the port" ? port : await findPort());
    const refusal = new RegExp(`of this proxy itself.*\n.*${result}\n`);
    await until(() => refusal.test(proxy.stderr), "the refusal");
    await proxy.kill();
  },
);
