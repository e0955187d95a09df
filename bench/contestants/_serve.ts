/** What every contestant on Node is told, and how it listens. */
import { createServer, type RequestListener } from "node:http";

export const port: number = Number(process.env["PORT"]);
export const target: string = process.env["TARGET"] ?? "";
export const hostname = "127.0.0.1";

/** Ends with the bench, however that ends: it holds stdin open. */
process.stdin.resume().on("end", () => process.exit());

/** A server of `node:http`, for contestants that are handlers of it. */
export function listen(handler: RequestListener): void {
  createServer(handler).listen(port, hostname, 4096);
}
