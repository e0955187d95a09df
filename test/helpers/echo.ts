/** An upstream whose response describes its request. */
import { createServer } from "node:http";
import { afterAll, beforeAll } from "vitest";
import { listen } from "./serve.ts";

/** Runs the upstream during the tests of a file. */
export function useEcho(): { readonly url: string } {
  const server = createServer((req, res) => {
    res.setHeader("Content-Type", "application/json");
    res.end(JSON.stringify({ method: req.method, path: req.url, headers: req.headers }));
  });
  const echo = { url: "" };
  beforeAll(async () => {
    echo.url = `http://127.0.0.1:${await listen(server)}`;
  });
  afterAll(() => {
    server.closeAllConnections();
    server.close();
  });
  return echo;
}
