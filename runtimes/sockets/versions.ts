/**
 * The oldest version of each runtime that can run this package.
 *
 * - Node: before this version, `Response.arrayBuffer()` of a small body returns the whole buffer pool, with bytes of
 *   other bodies.
 * - Bun: the sockets of earlier versions are untested.
 * - Deno: before this version, the server does not report clients that disconnect, and accepts malformed chunk sizes in
 *   which another request can hide.
 */
export const OLDEST = { Node: "22.4.0", Bun: "1.4.0", Deno: "2.8.3" } as const;

/** Returns a message that names the version that is needed; undefined if the version of the runtime is new enough. */
export function checkVersion(runtime: keyof typeof OLDEST, version: string): string | undefined {
  const oldest = OLDEST[runtime];
  const age = version.localeCompare(oldest, "en", { numeric: true });
  return age < 0 ? `${runtime} ${version} is too old: use ${oldest} or newer` : undefined;
}

/**
 * Throws if a runtime is too old.
 * @param version the version; undefined if the entry runs on another runtime, as in tests
 * @throws TypeError that says which version is needed
 */
export function assertVersion(runtime: keyof typeof OLDEST, version: string | undefined): void {
  const wrong = version === undefined ? undefined : checkVersion(runtime, version);
  if (wrong !== undefined) throw new TypeError(`fetchway: ${wrong}`);
}
