/** Reads the settings of a contestant on Node, and starts its server. */
import { readFileSync } from "node:fs";
import { createServer } from "node:https";
import { type RequestListener, ServerResponse } from "node:http";
import type { Server, Socket } from "node:net";
import { type Handlers, listen, serve, type ServerKind } from "../../test/helpers/serve.ts";

export const port: number = Number(process.env["PORT"]);
export const target: string = process.env["TARGET"] ?? "";
export const hostname = "127.0.0.1";
/** Whether the contestant sends its requests by HTTP/2. */
export const isHttp2: boolean = process.argv.includes("http2");
/** Options with which the scoreboard hardens the proxy. The benchmark sets none. */
export const options: object = JSON.parse(process.env["OPTIONS"] ?? "{}") as object;

/** The file with the server's key and certificate, in this order; undefined for a server without TLS. */
const certificate = process.env["CERTIFICATE"];

// The benchmark keeps stdin open. When the benchmark ends, even by a crash, this process ends too.
process.stdin.resume().on("end", () => process.exit());

/** Starts the contestant's server on the port that the benchmark expects, and returns it. */
export async function start<Kind extends ServerKind>(
  kind: Kind,
  handler: Handlers[Kind],
): Promise<Server> {
  if (certificate === undefined) return (await serve(kind, handler, port)).server;
  const pem = readFileSync(certificate);
  const server = createServer({ cert: pem, key: pem }, handler as RequestListener);
  await listen(server, port);
  return server;
}

/**
 * Answers with 502 if the upstream has failed, so that the load generator counts the failure and no client waits.
 * If the response has begun, or `answer` is the socket of a tunnel, the connection is aborted.
 */
export function answerFailure(answer: ServerResponse | Socket): void {
  if (answer instanceof ServerResponse && !answer.headersSent) answer.writeHead(502).end();
  else answer.destroy();
}
