/** The size of the entries that Workers bundle. The start time of a Worker and its upload limit depend on it. */
import { expect, test } from "vitest";
import { readPage } from "./_readme.ts";
import { bundleOf, readTable, renderTables } from "./_size.ts";

/**
 * The maximum number of bytes of an entry, minified and compressed with gzip. To raise a limit, add a line that says which
 * feature needs the bytes.
 *
 * - workerd 22 000: everything that Workers had when this limit was set (21 904 bytes).
 * - fetch 21 300: the same without the code that only workerd needs (21 153 bytes).
 * - 700 for both: options have one schema, and those written as a literal at each call share their compiled form.
 * - 750 for both: upgrades, that is which requests ask for one, their refusals, and the options `upgrades` and
 *   `tunnelTimeout`.
 * - 1 000 for both: interim responses, and trailer fields with the names that they must not have.
 * - 300 for workerd, 100 for fetch: WebSockets in responses of `fetch`, and servers that switch protocols themselves.
 * - 150 for both: `http2` of targets, and requests that the upstream did not process.
 * - 600 for both: `onRequestEnd`, with counted bodies and tunnels.
 * - 1 250 for both: several upstreams as one target, with failover and `attemptTimeout`.
 * - 600 for workerd, 450 for fetch: the checks of a handshake's answer, errors that name the fix for HTTP/2 and TLS, and
 *   the nearest names of misspelt options.
 * - 300 for both: `OPTIONS *`, and the answer 405 to CONNECT.
 * - 500 for workerd, 650 for fetch: a request that is not sent gives its place at an upstream back; `attemptTimeout` asks the
 *   retry budget before it stops an attempt.
 * - 300 for both: `serverTiming`, `startTrace`, and the port to tools that trace.
 * - 900 for both: `mirror`, with copies of bodies, their deadline, and `waitUntil`.
 * - 150 for both: the option names of h3's `proxyRequest` and of `hono/proxy`, each with the name to use instead.
 * - 300 for both: `address` of targets, frozen targets, which are parsed once, upstreams in `stats()`, `route` of events, and
 *   requests that leave the queue immediately.
 * - 200 for both: the part of a path that an h3 mount has removed, and redirects that stay below the mount.
 * - 700 less for both: the options of pools, which these entries refuse, are neither checked nor explained there.
 * - 250 less for both: names that trailers must not have, advice about servers of other runtimes.
 * - 120 less for workerd: the length of an app's response is checked only where no pipe of the runtime does so.
 * - 400 for workerd, 350 for fetch: the steps of an exchange that need not wait are apart from those that may, so that an
 *   ordinary request has no async function, whose variables would stay in memory while it waits.
 * - 1 450 less for both: failover is imported only with a target of several upstreams.
 * - 640 less for both: addresses are numbers of 128 bits, the event of `onRequestEnd` is collected in place, errors of
 *   targets are shorter, nothing is in the bundle without a use.
 * - 220 less for workerd, 70 less for fetch: the entries import the calls first, so that gzip finds more repetitions.
 * - 120 less for both: only servers that connect clients with a tunnel bring the code that counts its bytes.
 * - 190 for workerd, 180 for fetch: `trustProxy` compares IPv4 addresses as numbers, without objects and big integers.
 * - 110 for both: a request to one of several upstreams waits for no promise if an upstream can take it immediately.
 * - 310 for workerd, 215 for fetch: the runtime moves large uploads, and the bytes left in the stream show their progress.
 * - 60 for both: the proxy can listen to the client immediately, and recognizes transports of this package.
 * - 100 for both: without `onRequestEnd`, `serverTiming` collects only times, and nothing is reported after the end of a request.
 * - 90 for both: a failed upload waits for the promise of `fetch`, which shows which side has failed, and all sinks into a web
 *   stream are of one class.
 * - 20 for workerd, 40 for fetch: bytes that arrived while the event loop was blocked are read before `attemptTimeout` ends an attempt.
 * - 300 for workerd, 250 for fetch: a hook that returns no promise is not waited for, and header fields that `onRequest` does not
 *   look at are sent unchanged.
 * - 110 for both: misspelt options of a target, and unknown members that a hook sets on a draft, are refused by name.
 * - 105 for both: a target of several upstreams is started once; promises of `onRequestEnd` and of interim responses that
 *   reject are handled.
 * - 50 for both: ranges of `trustProxy` that were used last stay in the cache.
 * - 145 for both: an interceptor that frames a request, or announces another length than that of its body, is refused.
 * - 270 for workerd, 210 for fetch: aliases of names fold every character that is not a letter or a digit, paths are decoded in
 *   every octet and layer, TRACE is refused or loses its secrets, and messages have credentials cut.
 * - 80 for both: the limit to connect belongs to a request, and a response that is never read ends.
 * - 185 for workerd, 135 for fetch: the code is divided into layers. It is 100 bytes longer, and in another order, which gzip compresses less well.
 * - 300 for both: one table says when a request is sent again, for one upstream and for several; if no byte of a body
 *   was sent, another attempt sends it.
 * - 85 for both: one list of steps in place of two pipelines, which shared repeated text.
 * - 40 for both: a target of several upstreams may keep clients at one of them, by a cookie.
 * - 215 for both: paths that `pathRewrite` leaves without a slash, or does not return; a signal that ends a tunnel; a length of 0
 *   beside `Upgrade`, and upgrades by other methods than GET.
 * - 175 for both: the body of a GET or HEAD is refused with 501 where it is hidden, and a body that the upstream might leave unread is sent once.
 * - 30 for both: `tunnelCloseTimeout`.
 * - 60 for both: the queue of waiting requests distinguishes clients.
 * - 85 for both: the error of a request body that the framework has cut says how; on workerd, an upload that
 *   breaks off prints nothing.
 * - 75 for both: a connection that a permission or a firewall forbids has its own error type.
 * - 10 for both: a response with 408 has its reason phrase.
 * - 165 for both: a failed exchange notes the upstream in its error, for `explainError`; the option `log`.
 * - 100 for both: the error of a bad target has the URL that was probably meant, such as `http://localhost:4000` for
 *   `localhost:4000` or `4000`; the socket of an nginx configuration is refused.
 * - 225 for both: the refusal of `wait`, its row in the rule for repeating, the calls with which plans and proxies of other
 *   runtimes use it, and the time that a request has waited, in the event of `onRequestEnd`.
 * - 95 for both: the option `onWait`; the pipeline notes whether an exchange can be run again in another proxy (`moveWaiting`).
 * - 150 for both: an `onResponse` that has read the body, a target that is undefined, and a path that `onRequest` leaves without a
 *   slash.
 * - 30 for both: a runtime has its own check of whether `onResponse` has used the body.
 * - 215 for both: a target that is an object is compared with those parsed before, and so parsed once.
 * - 10 for both: a tunnel through the routes of an app on Node is reported with the status 101.
 * - 30 for both: a sink that wraps another one says whether the other one was read from, so that a dropped response ends;
 *   attempts may also be abandoned by `fetchway/streams`.
 * - 100 for both: `cookieSecure`.
 * - 700 less for workerd, 690 less for fetch: the code of `mirror` is imported only with `fetchway/mirror`.
 * - 130 for both: `Headers` that a hook gets record which names it has changed.
 * - 125 for both: `trustProxy` compares IPv6 addresses as numbers as well, without `URL` and big integers.
 * - 60 for both: forwarding fields of a trusted peer are read without maps, and patterns are made once, not for each request.
 * - 10 for both: whether a client accepts trailer fields is read only from `TE`, not from another dropped field of that length.
 */
const LIMITS = { workerd: 31_310, fetch: 30_190 };

test.each(Object.entries(LIMITS))("%s has at most %i compressed bytes", async (entry, limit) => {
  const { files, gzip, text } = await bundleOf(`export * from "./runtimes/${entry}.ts"`, entry);
  // The runtime itself sends the requests, so the bundle must not contain Fetchway's own client, pool and sockets. Failover
  // is imported only with a target of several upstreams, and the code of a mirror only with one.
  const absent =
    /\/(?:http1|sockets|node)\/|\/upstreams\/(?!startupstreams)|exchange\/mirror|pool|otherlibraries|trailers/;
  expect(Object.keys(files).filter((file) => absent.test(file))).toEqual([]);
  expect(text).toContain("createProxy");
  expect(gzip).toBeLessThanOrEqual(limit);
});

test.each([
  ["proxyFetch", "createProxy"],
  ["createProxy", "proxyFetch"],
])("a bundle that imports only %s contains no code of %s", async (name, other) => {
  const [all, alone] = await Promise.all([
    bundleOf('export * from "./runtimes/workerd.ts"'),
    bundleOf(`export { ${name} } from "./runtimes/workerd.ts"`),
  ]);
  const call = new RegExp(`${other}\\((?:request, target, options\\?|options)\\) takes`);
  expect(all.text).toMatch(call);
  expect(alone.text).not.toMatch(call);
});

/** Whether a number of the page is close enough: a page that is slightly out of date must not fail the run. */
function isNear(measured: string, written: string): boolean {
  const difference = Math.abs(Number.parseFloat(measured) - Number.parseFloat(written));
  return difference <= Math.max(0.2, 0.02 * Number.parseFloat(measured)) || measured === written;
}

/** Returns the numbers of a table's row. */
function sizesOf(row: readonly string[]): string[] {
  return row.filter((cell) => /^\d+\.\d$/.test(cell));
}

test.each(Object.keys(renderTables))("the table %s of docs/size.md is up to date", async (name) => {
  const measured = (await renderTables[name]?.()) ?? [];
  const written = readTable(readPage("docs/size.md"), name);
  const nameOf = ([first = ""]: readonly string[]): string => first;
  expect(written.map(nameOf).toSorted()).toEqual(measured.map(nameOf).toSorted());
  const wrong = measured.filter((row) => {
    const numbers = sizesOf(written.find((other) => nameOf(other) === nameOf(row)) ?? []);
    return !sizesOf(row).every((size, i) => isNear(size, numbers[i] ?? "0.0"));
  });
  expect(wrong, "run: npm run size").toEqual([]);
});

test("README has the sizes of docs/size.md", () => {
  const sizes =
    /([\d.]+) kB of compressed code \(h3's `proxyRequest`: ([\d.]+), httpxy: ([\d.]+)\)/;
  const [, ...written] = sizes.exec(readPage("README.md")) ?? [];
  const page = readPage("docs/size.md");
  const rows = [...readTable(page, "entries"), ...readTable(page, "peers")];
  const names = ["Workers", "`proxyRequest` of h3", "`proxyFetch` of httpxy"];
  expect(written).toHaveLength(names.length);
  const right = names.map((name) => rows.find(([first]) => first === name)?.[1] ?? "");
  expect(right.filter((size, i) => !isNear(size, written[i] ?? ""))).toEqual([]);
});
