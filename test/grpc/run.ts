/**
 * Runs gRPC's interop tests, with their client and server in Go, directly and through the command on a port without TLS.
 *
 *     npm run test:grpc
 *
 * It needs Go in the PATH. The first run compiles the client and the server into node_modules/.cache.
 */
import { spawnSync } from "node:child_process";
import { join } from "node:path";
import { type Program, startProgram } from "../helpers/program.ts";

const root = join(import.meta.dirname, "../..");
const INTEROP = "node_modules/.cache/grpc-interop";
const binary = join(root, INTEROP);

function run(program: string, args: string[]): void {
  const { status, error } = spawnSync(program, args, {
    cwd: import.meta.dirname,
    stdio: "inherit",
  });
  if (status !== 0) throw new Error(`${program} ${args[0]} failed`, { cause: error });
}

async function portOf(program: Program): Promise<string> {
  const [, port = ""] = await program.printed(/(?:port=|listens on http:\/\/127\.0\.0\.1:)(\d+)/);
  return port;
}

run("go", ["build", "-o", binary]);
await using server = startProgram(`../../${INTEROP}`, ["server"]);
const port = await portOf(server);
run(binary, ["client", `127.0.0.1:${port}`]);
for (const workers of ["1", "2"]) {
  const flags = ["--http2", "--port", "0", "--log", "off", "--workers", workers];
  await using command = startProgram("node", [
    "command/main.ts",
    `http://127.0.0.1:${port}`,
    ...flags,
  ]);
  run(binary, ["client", `127.0.0.1:${await portOf(command)}`]);
}
