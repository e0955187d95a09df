/**
 * Logs a line for each attempt to send a request. Retries and followed redirects are attempts, too:
 *
 *     npx srvx index.ts     # or with bun run, deno serve -A
 */
import { createProxy } from "fetchway";
import { explainError } from "fetchway/errors";
import type { Interceptor } from "fetchway/transport";

export const log: Interceptor = (next) => async (request, scope) => {
  const start = performance.now();
  const writeLine = (result: number | string): void => {
    const ms = Math.round(performance.now() - start);
    console.log(
      `${request.method} ${request.upstream.origin}${request.path} → ${result} (${ms} ms)`,
    );
  };
  try {
    const response = await next(request, scope);
    writeLine(response.status);
    return response;
  } catch (error) {
    writeLine(explainError(error));
    throw error;
  }
};

export default createProxy({ target: "http://127.0.0.1:4000", interceptors: { attempt: [log] } });
