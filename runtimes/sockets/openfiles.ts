/** How many files and sockets this process may have open, and the default of `maxSockets` that follows from it. */

import { poolDefaults } from "../../src/options/pooloptions.ts";

/** These globals are read at run time, because a bundle for another runtime cannot import Node's modules. */
const { process, Deno } = globalThis as unknown as {
  process?: {
    readonly platform: string;
    readonly report?: { excludeNetwork?: boolean; getReport(): DiagnosticReport };
    getBuiltinModule(name: "node:fs"): typeof import("node:fs");
  };
  Deno?: { permissions: { querySync(descriptor: { name: string }): { state: string } } };
};

/** The members of Node's diagnostic report (`process.report`) that contain the limit. */
interface DiagnosticReport {
  readonly userLimits?: { readonly open_files?: { readonly soft?: number | "unlimited" } };
}

/** The highest default of `maxSockets`. An app that needs more connections to one upstream should set the option. */
const MAX_DEFAULT = 4096;

let known: number | undefined;

/**
 * Returns how many files and sockets this process may have open (`ulimit -n`): `Infinity` without a limit, `undefined` on a
 * runtime that does not report the limit. Once the limit is known, the system is not asked again.
 */
export function limitOfOpenFiles(): number | undefined {
  return (known ??= readLimit());
}

/**
 * Returns the default of `maxSockets`: a quarter of the limit of open files, but at most `MAX_DEFAULT`. A quarter, because each
 * request also takes a client's connection, and other upstreams, tunnels and files take the rest. If the limit is not known,
 * the result is `poolDefaults.maxSockets`.
 */
export function defaultMaxSockets(): number {
  const limit = limitOfOpenFiles();
  if (limit === undefined) return poolDefaults.maxSockets;
  return Math.min(MAX_DEFAULT, Math.max(1, Math.floor(limit / 4)));
}

function readLimit(): number | undefined {
  try {
    if (process?.platform === "linux") return mayReadProc() ? readProc() : undefined;
    return readReport();
  } catch {
    // A sandbox may refuse the file or the report.
    return undefined;
  }
}

function readProc(): number | undefined {
  const text = process?.getBuiltinModule("node:fs").readFileSync("/proc/self/limits", "latin1");
  const [, soft] = /^Max open files +(\S+)/m.exec(text ?? "") ?? [];
  return soft === undefined ? undefined : toLimit(soft);
}

/**
 * Whether `/proc` may be read. Deno reads it only with all permissions, and would ask the user for missing ones on a terminal.
 */
function mayReadProc(): boolean {
  const names = ["read", "write", "net", "env", "sys", "run", "ffi"];
  return (
    Deno === undefined ||
    names.every((name) => Deno.permissions.querySync({ name }).state === "granted")
  );
}

/** Reads the limit from the runtime's report, for systems without `/proc`, such as macOS. Windows has no such limit. */
function readReport(): number | undefined {
  const report = process?.report;
  if (report === undefined || process?.platform === "win32" || Deno !== undefined) return undefined;
  const { excludeNetwork } = report;
  // Otherwise the report would look up the names of all network addresses, which can take seconds.
  report.excludeNetwork = true;
  const soft = report.getReport().userLimits?.open_files?.soft;
  report.excludeNetwork = excludeNetwork ?? false;
  return soft === undefined ? undefined : toLimit(soft);
}

function toLimit(soft: string | number): number | undefined {
  const limit = soft === "unlimited" ? Infinity : Number(soft);
  return limit > 0 ? limit : undefined;
}
