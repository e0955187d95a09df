/**
 * What went wrong with a request, where, and what to do: `fetchway/errors`. The other entries do not load this one until a
 * failure has to be printed.
 * @module
 */
import { type Diagnosis, diagnoseError, renderDiagnosis } from "./diagnosis.ts";

export { type Diagnosis, diagnoseError, renderDiagnosis };
export type { NameOption } from "./diagnosis.ts";
export { escapeControls } from "./printable.ts";
export { describeWait } from "./waits.ts";

/**
 * Explains an error in one line for the operator: what happened, at which upstream, and what to do. The line contains
 * addresses, so it belongs in a log, not in a response. It contains neither credentials nor control characters.
 * @param error the error that `onError` or `onRequestEnd` gets, or with which the body of a response fails: a `ProxyError`, or
 * the exception of a hook
 * @example
 * ```ts
 * import { createProxy } from "fetchway";
 * import { explainError } from "fetchway/errors";
 *
 * // connection_refused: 127.0.0.1:4000 (is it running?)
 * createProxy({ target, onError: (error) => console.error(explainError(error)) });
 * ```
 */
export function explainError(error: unknown): string {
  return renderDiagnosis(diagnoseError(error));
}
