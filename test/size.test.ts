/** The size of the entry that Workers bundle: a Worker's start and its upload limit depend on it. */
import { gzipSync } from "node:zlib";
import { build } from "esbuild";
import { expect, test } from "vitest";

const root = new URL("../", import.meta.url).pathname;

/**
 * The maximum number of bytes of an entry, minified and compressed with gzip. To raise a limit, add a line that says which
 * feature needs the bytes.
 *
 * - workerd 22 000: everything that Workers had when this limit was set (21 904 bytes).
 * - fetch 21 300: the same without what is special to workerd (21 153 bytes).
 * - both 1 000 more: interim responses, and trailer fields with the names that they must not have (929 and 1 026 bytes).
 * - both 150 more: `http2` of targets, and requests that the upstream did not process (141 and 140 bytes).
 */
const LIMITS = { workerd: 23_150, fetch: 22_450 };

test.each(Object.entries(LIMITS))("the %s entry has at most %i bytes", async (entry, limit) => {
  const { metafile, outputFiles } = await build({
    entryPoints: [`runtimes/${entry}.ts`],
    absWorkingDir: root,
    bundle: true,
    minify: true,
    write: false,
    metafile: true,
    format: "esm",
    platform: "neutral",
    target: "es2024",
  });
  // The runtime sends the requests: its bundle has no client, no pool and no socket of this project.
  const files = Object.keys(metafile.inputs);
  expect(files.filter((file) => /\/(?:http1|sockets|node)\//.test(file))).toEqual([]);
  const [output] = outputFiles;
  expect(gzipSync(output?.contents ?? "", { level: 9 }).byteLength).toBeLessThanOrEqual(limit);
  expect(output?.text).toContain("createProxy");
});
