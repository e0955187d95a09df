/** What every contestant on Node is told, and how it starts. */
import { type Handlers, serve, type ServerKind } from "../../test/_serve.ts";

export const port: number = Number(process.env["PORT"]);
export const target: string = process.env["TARGET"] ?? "";
export const hostname = "127.0.0.1";

/** Ends with the bench, however that ends: it holds stdin open. */
process.stdin.resume().on("end", () => process.exit());

/** Starts the server that the bench waits for. */
export async function start<Kind extends ServerKind>(
  kind: Kind,
  handler: Handlers[Kind],
): Promise<void> {
  await serve(kind, handler, port);
}
