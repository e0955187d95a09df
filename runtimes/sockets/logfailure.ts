import type { ProxyError } from "../../src/error.ts";
import type { FailureLines } from "../../src/explain/failurelines.ts";
import { isPoolClosed } from "../../src/transport/closing.ts";
import type { LogFailure } from "../../src/transport/scope.ts";

/**
 * Makes the function that prints failures during development, for apps that have no hook for them. The code that prints is
 * loaded with the first failure.
 * @param readMode returns `NODE_ENV`; called once, at the first failure
 */
export function createFailureLog(readMode: () => string | undefined): LogFailure {
  let isOn: boolean | undefined;
  let lines: FailureLines | undefined;
  const loadAndAdd = async (error: ProxyError): Promise<void> => {
    try {
      ({ failureLines: lines } = await import("../../src/explain/failurelines.ts"));
      lines.add(error);
    } catch {
      // A bundle may lack the module. Then nothing is printed.
    }
  };
  return (error) => {
    // Skip errors below 500, which clients cause, and errors of requests to a proxy that the app itself has closed.
    if (error.status < 500 || isPoolClosed(error)) return;
    isOn ??= readMode() !== "production";
    if (!isOn) return;
    if (lines === undefined) void loadAndAdd(error);
    else lines.add(error);
  };
}
