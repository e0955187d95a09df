/**
 * Finds the files of src/ and runtimes/ whose functions run when an h3 handler proxies a request, after warm-up.
 *
 *     npm run way             # prints the files and the functions of each
 *     npm run way -- node     # the same for the handler of another server: node, srvx or hono
 */
import { readFileSync } from "node:fs";
import {
  type Ask,
  type Files,
  get,
  postInPieces,
  startWork,
  type WorkHost,
  workHosts,
} from "./_work.ts";

export type WayName = "GET" | "streaming POST";

/**
 * The requests, each with the maximum number of files whose functions it may call. One of the files is `http1/pool.ts`, which
 * HTTP/1.1 and HTTP/2 share.
 */
export const ways: Readonly<Record<WayName, { ask: Ask; maxFiles: number }>> = {
  GET: { ask: get, maxFiles: 21 },
  "streaming POST": { ask: postInPieces, maxFiles: 27 },
};

/** Sends each request to a host, and returns the files whose functions it calls. */
export async function findWays(host: WorkHost): Promise<Record<WayName, Files>> {
  const worker = await startWork(host, "way");
  try {
    return {
      GET: await worker.way(ways.GET.ask),
      "streaming POST": await worker.way(ways["streaming POST"].ask),
    };
  } finally {
    await worker.stop();
  }
}

/** Returns the files that CONTRIBUTING.md names in its section on the path of a request, such as `src/pipeline/pipeline.ts`. */
export function readDocumentedWay(): string[] {
  const text = readFileSync(new URL("../../CONTRIBUTING.md", import.meta.url), "utf8");
  const section = text.split(/^(?=##+ )/m).find((part) => /^## The path of a request$/m.test(part));
  if (section === undefined)
    throw new Error("CONTRIBUTING.md has no section on the path of a request");
  return [...new Set(section.match(/\b(?:src|runtimes)\/[\w./-]+\.ts\b/g))];
}

if (import.meta.main) {
  const host = process.argv[2] ?? "h3";
  if (!workHosts.includes(host as WorkHost)) {
    throw new TypeError(`There is no host ${host}: use ${workHosts.join(", ")}`);
  }
  for (const [name, files] of Object.entries(await findWays(host as WorkHost))) {
    const entries = Object.entries(files);
    const count = entries.flatMap(([, functions]) => functions).length;
    console.log(`${name}, ${host}: ${entries.length} files, ${count} functions`);
    for (const [file, functions] of entries) console.log(`  ${file}: ${functions.join(" ")}`);
  }
}
