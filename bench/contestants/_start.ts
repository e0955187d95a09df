/** Reads the settings of a contestant on Node, and starts its server. */
import { type Handlers, serve, type ServerKind } from "../../test/_serve.ts";

export const port: number = Number(process.env["PORT"]);
export const target: string = process.env["TARGET"] ?? "";
export const hostname = "127.0.0.1";

// The benchmark holds stdin open, so this process ends with it, even if the benchmark crashes.
process.stdin.resume().on("end", () => process.exit());

/** Starts the contestant's server on the port that the benchmark expects. */
export async function start<Kind extends ServerKind>(
  kind: Kind,
  handler: Handlers[Kind],
): Promise<void> {
  await serve(kind, handler, port);
}
