/** The global is read at run time, because a bundle for another runtime cannot import Node's modules. */
const { process } = globalThis as unknown as { process: { readonly platform: string } };

/**
 * The maximum number of bytes of a path in a socket address (`sun_path`), which ends with a NUL. Windows has named pipes
 * instead, without this limit.
 */
const LIMITS: Readonly<Record<string, number>> = { linux: 107, win32: Infinity };
const LIMIT_ELSEWHERE = 103;

/**
 * Checks the length of the path of a Unix domain socket, because the system refuses each connection to a path that is too long.
 * @returns what is wrong and the limit; undefined for a path that can be connected to
 */
export function checkSocketPath(path: string | undefined): string | undefined {
  const limit = LIMITS[process.platform] ?? LIMIT_ELSEWHERE;
  // Encode only a long path: each UTF-16 code unit takes at most three bytes.
  if (path === undefined || path.length * 3 <= limit) return undefined;
  const { length } = new TextEncoder().encode(path);
  if (length <= limit) return undefined;
  return `use a shorter path: it has ${length} bytes, and the address of a socket takes ${limit}`;
}
