/** The size of the entries that Workers bundle. The start time of a Worker and its upload limit depend on it. */
import { gzipSync } from "node:zlib";
import { build } from "esbuild";
import { expect, test } from "vitest";

const root = new URL("../", import.meta.url).pathname;

/**
 * The maximum number of bytes of an entry, minified and compressed with gzip. To raise a limit, add a line that says which
 * feature needs the bytes.
 *
 * - workerd 22 000: everything that Workers had when this limit was set (21 904 bytes).
 * - fetch 21 300: the same without the code that only workerd needs (21 153 bytes).
 * - 700 for both: options have one schema, and those written as a literal at each call share what they compile to.
 * - 750 for both: upgrades, that is which requests ask for one, their refusals, and the options `upgrades` and
 *   `tunnelTimeout`.
 * - 1 000 for both: interim responses, and trailer fields with the names that they must not have.
 * - 300 for workerd, 100 for fetch: WebSockets in responses of `fetch`, and servers that switch by their own means.
 * - 150 for both: `http2` of targets, and requests that the upstream did not process.
 * - 600 for both: `onRequestEnd`, with counted bodies and tunnels.
 * - 1 250 for both: several upstreams as one target, with failover and `attemptTimeout`.
 * - 600 for workerd, 450 for fetch: the checks of a handshake's answer, errors that name the fix for HTTP/2 and TLS, and
 *   names of options that are near.
 * - 300 for both: `OPTIONS *`, and the 405 of CONNECT.
 * - 500 for workerd, 650 for fetch: a request that is not sent gives its place at an upstream back; `attemptTimeout` asks the
 *   retry budget before it stops an attempt.
 * - 300 for both: `serverTiming`, `startTrace`, and the port to tools that trace.
 * - 900 for both: `mirror`, with copies of bodies, their deadline, and `waitUntil`.
 * - 150 for both: the option names of h3's `proxyRequest` and of `hono/proxy`, each with what to write instead.
 * - 300 for both: `address` of targets, frozen targets, which are parsed once, upstreams in `stats()`, `route` of events, and requests
 *   that leave the queue at once.
 */
const LIMITS = { workerd: 30_250, fetch: 29_050 };

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
  // The runtime itself sends the requests, so the bundle must not contain Fetchway's own client, pool and sockets.
  const files = Object.keys(metafile.inputs);
  expect(files.filter((file) => /\/(?:http1|sockets|node)\//.test(file))).toEqual([]);
  const [output] = outputFiles;
  expect(gzipSync(output?.contents ?? "", { level: 9 }).byteLength).toBeLessThanOrEqual(limit);
  expect(output?.text).toContain("createProxy");
});
