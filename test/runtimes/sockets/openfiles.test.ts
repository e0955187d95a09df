/** Effects of the limit of open files: the default of `maxSockets`, and the error of a request without a descriptor. */
import { execFile } from "node:child_process";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { describe, expect, test } from "vitest";
import { toSocketError } from "../../../src/transport/socketerror.ts";

const ROOT = fileURLToPath(new URL("../../..", import.meta.url));
const program = "test/runtimes/sockets/_openfiles.program.ts";
const run = promisify(execFile);

/** Runs the program with a limit of open files, which only POSIX systems have. */
async function withLimit(limit: number, ...args: string[]): Promise<Record<string, unknown>> {
  const script = `ulimit -n ${limit}; exec "$@"`;
  const bin = `${ROOT}node_modules/.bin/${args[0]}`;
  const env = { ...process.env, NODE_OPTIONS: "" };
  const { stdout } = await run("sh", ["-c", script, "sh", bin, ...args.slice(1)], {
    cwd: ROOT,
    env,
  });
  return JSON.parse(stdout) as Record<string, unknown>;
}

describe.skipIf(process.platform !== "linux")("the limit of file descriptors", () => {
  test.each([
    ["Node", ["node", program, "node"]],
    ["undici", ["node", program, "undici"]],
    ["Bun", ["bun", program, "bun"]],
    ["Deno", ["deno", "run", "-A", program, "deno"]],
  ])(
    "%s: maxSockets is a quarter of the limit, and a request that gets no descriptor is sent to no other upstream",
    async (name, args) => {
      const { maxSockets, asked, ...answer } = await withLimit(400, ...args);
      expect({ maxSockets, asked }).toEqual({ maxSockets: 100, asked: 7 });
      // Bun 1.4 reports a connection without a descriptor as one that the upstream has refused.
      if (name === "Bun") return;
      expect(answer).toEqual({
        status: 503,
        retryAfter: "1",
        errors: ["connection_limit_reached"],
        upstreams: ["up 0", "up 0"],
      });
    },
  );

  test("maxSockets is 4096 at most, and 256 if the limit of descriptors is not known", async () => {
    const print = "console.log(createTransport().stats().maxSockets)";
    const source = `import { createTransport } from "./runtimes/RUNTIME.ts"; ${print}`;
    const node = source.replace("RUNTIME", "node");
    expect(await withLimit(18_000, "node", "--input-type=module", "--eval", node)).toBe(4096);
    // Deno reads the limit only if it has all permissions, and must not ask for them.
    const deno = source.replace("RUNTIME", "deno");
    const main = `data:application/typescript,${encodeURIComponent(deno.replace("./", `file://${ROOT}`))}`;
    expect(await withLimit(400, "deno", "run", "--allow-read", "--allow-env", main)).toBe(256);
  });
});

describe("errors of a machine that has no descriptor or port left", () => {
  test.each(["EMFILE", "ENFILE", "EADDRNOTAVAIL"])(
    "the error %s becomes 503 with Retry-After",
    (code) => {
      expect(toSocketError({ code }, false, false)).toMatchObject({
        code: "connection_limit_reached",
        status: 503,
        retryAfter: 1,
        cause: { code },
      });
    },
  );

  test("the error is connection_refused if another address of the upstream has refused the connection", () => {
    // A machine without IPv6 has no local address for a connection to ::1.
    const errors = [{ code: "EADDRNOTAVAIL" }, { code: "ECONNREFUSED" }];
    const thrown = { code: "EADDRNOTAVAIL", errors };
    expect(toSocketError(thrown, false, false).code).toBe("connection_refused");
  });
});
