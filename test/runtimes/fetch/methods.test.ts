/** Methods that the `fetch` of a runtime would change. */
import { createServer } from "node:http";
import { afterAll, beforeAll, expect, test } from "vitest";
import { startProgram } from "../../helpers/program.ts";
import { listen } from "../../helpers/serve.ts";

const server = createServer((req, res) => void res.end(req.method));
let origin = "";
beforeAll(async () => {
  origin = `http://127.0.0.1:${await listen(server)}`;
});
afterAll(() => server.close().closeAllConnections());

const METHODS = ["DELETE", "QUERY", "PROPFIND", "BREW", "patch", "get", "CONNECT", "TRACE"];

test.each([
  ["node", []],
  ["bun", []],
  ["deno", ["run", "-A"]],
] as const)(
  "on %s, a method that `onRequest` sets reaches upstreams and apps unchanged, or gets 501",
  async (tool, flags) => {
    const args = [...flags, "test/runtimes/fetch/_methods.program.ts", origin, ...METHODS];
    await using program = startProgram(tool, args);
    await program.ended();
    const lines = program.output().match(/^\[.*\]$/gm) ?? [];
    const seen = lines.map((line) => JSON.parse(line) as [string, string | number]);
    expect(seen).toHaveLength(2 * METHODS.length);
    // The upstream answers a method that Node does not know with 400.
    const isRight = (method: string, got: string | number): boolean =>
      got === method || got === 501 || got === 400;
    expect(seen.filter(([method, got]) => !isRight(method, got))).toEqual([]);
    expect(seen[0]).toEqual(["DELETE", "DELETE"]);
  },
);
