/** Option names of other libraries, and options in the wrong place: each error names the right option. */
import { readFileSync } from "node:fs";
import { describe, expect, test } from "vitest";
import * as bun from "../../../runtimes/bun.ts";
import * as deno from "../../../runtimes/deno.ts";
import * as anyFetch from "../../../runtimes/fetch.ts";
import { createProxy, createTransport, proxyFetch } from "../../../runtimes/node.ts";
import * as workerd from "../../../runtimes/workerd.ts";
import { poolDefaults, poolSchema } from "../../../src/options/pooloptions.ts";
import { proxySchema } from "../../../src/options/proxyoptions.ts";
import { otherLibraries } from "../../helpers/otherlibraries.ts";

const target = "http://127.0.0.1:4000";

/** Returns the error for an option of a proxy, and expects the same error in each place that accepts such options. */
async function toProxy(options: object): Promise<string> {
  const sent = proxyFetch(new Request("http://a.test"), target, options);
  const { message } = (await sent.catch((error: unknown) => error)) as Error;
  expect(() => createProxy({ target, ...options })).toThrow(new TypeError(message));
  return message;
}

/** Returns the error for an option of a pool, and expects the same error in each place that accepts such options. */
function toPool(pool: object): string {
  let message = "";
  try {
    createTransport(pool);
  } catch (error) {
    expect(error).toBeInstanceOf(TypeError);
    message = (error as Error).message;
  }
  expect(() => createProxy({ target, pool })).toThrow(new TypeError(message));
  return message;
}

/** The rows of the table of option names in docs/connections.md: Fetchway's names, and those of other libraries. */
const rows = Array.from(
  readFileSync(new URL("../../../docs/connections.md", import.meta.url), "utf8")
    .split("## Names in other libraries")[1]
    ?.matchAll(/^\| (`[^|]*) \| ([^|]*)\|$/gm) ?? [],
  (cells) => cells.slice(1).map((cell) => Array.from(cell.matchAll(/`(\w+)`/g), ([, n]) => n)),
);

/** The rows in which a name of another library stands for exactly one option of the pool. */
const renamed = rows.flatMap(([ours = [], ...others]) => {
  const [name = ""] = ours;
  if (ours.length !== 1 || !(name in poolDefaults)) return [];
  return others.flat().flatMap((theirs) => (theirs === name || !theirs ? [] : [[theirs, name]]));
});

/** The names that are options of a proxy and also options of a pool. */
const shared = new Set(["timeout", "connectTimeout"]);

describe("the names in docs/connections.md", () => {
  test("the names are read from the table of renamed options", () => {
    expect(renamed).toEqual(
      expect.arrayContaining([
        ["socketActiveTTL", "socketTTL"],
        ["keepAliveMsecs", "keepAliveInitialDelay"],
        ["keepAliveTimeout", "freeSocketTimeout"],
        ["connections", "maxSockets"],
      ]),
    );
  });

  // `timeout` is left out: it is an option of Node's Agent, but also a valid option of the pool.
  test.each(renamed.filter(([theirs]) => theirs !== "timeout"))(
    "the error for %s suggests the name %s",
    async (theirs, ours) => {
      const options = { [theirs]: 5 };
      expect(toPool(options)).toBe(
        `fetchway: bad option \`${theirs}\`: it is called \`${ours}\` here`,
      );
      expect(await toProxy(options)).toBe(
        `fetchway: bad option \`${theirs}\`: it is called \`${ours}\` here, an option of the connections; ` +
          `write \`createProxy({ pool: { ${ours} } })\`, or \`transport: createTransport({ ${ours} })\``,
      );
    },
  );
});

test("the error for an old option name of agentkeepalive says that the option is called `freeSocketTimeout` here", () => {
  for (const old of ["freeSocketKeepAliveTimeout", "keepAliveTimeout"]) {
    expect(toPool({ [old]: 5 })).toMatch(/it is called `freeSocketTimeout` here$/);
  }
});

describe("pool options passed to a proxy", () => {
  const names = Object.keys(poolSchema);

  test.each(names.filter((name) => !shared.has(name)))(
    "the error for %s says how to pass it to the pool",
    async (name) => {
      expect(await toProxy({ [name]: 5 })).toBe(
        `fetchway: bad option \`${name}\`: it is an option of the connections; ` +
          `write \`createProxy({ pool: { ${name} } })\`, or \`transport: createTransport({ ${name} })\``,
      );
    },
  );
});

describe("proxy options passed to a pool", () => {
  test.each(Object.keys(proxySchema).filter((name) => !shared.has(name)))(
    "the error for %s says that it belongs to the proxy",
    (name) => {
      expect(toPool({ [name]: 5 })).toBe(
        `fetchway: bad option \`${name}\`: it is an option of the proxy; pass it to createProxy() or proxyFetch()`,
      );
    },
  );
});

test("the error for `ws`, http-proxy's option for WebSockets, names `upgrades` and `proxy.attach`", async () => {
  expect(await toProxy({ ws: true })).toBe(
    "fetchway: bad option `ws`: WebSockets are tunnelled by default (`upgrades`); on Node, call `proxy.attach(server)`",
  );
});

test("the errors for the options `agent` and `dispatcher` say how to configure connections", async () => {
  for (const name of ["agent", "httpAgent", "httpsAgent"]) {
    expect(await toProxy({ [name]: {} })).toContain(
      "connections are reused by default; to configure them, write `createProxy({ pool: { … } })`, or `transport: createTransport({ … })`",
    );
    expect(toPool({ [name]: {} })).toContain("the pool is the agent; leave it out");
  }
  const undici =
    "write `transport: createUndiciTransport(dispatcher)`, of fetchway/undici, on Node";
  for (const message of [await toProxy({ dispatcher: {} }), toPool({ dispatcher: {} })]) {
    expect(message).toBe(`fetchway: bad option \`dispatcher\`: ${undici}`);
  }
  expect(await toProxy({ agent: false })).toContain(
    "write `createProxy({ pool: { keepAlive: false } })`, or `transport: createTransport({ keepAlive: false })`",
  );
});

/** The names of the options of another library that are not options of a proxy here. */
function foreignNames(library: string): string[] {
  const names = otherLibraries.get(library) ?? [];
  return names.filter((name) => !Object.hasOwn(proxySchema, name));
}

/** Returns the error of a runtime's `proxyFetch` for a name. */
async function explain(runtime: { proxyFetch: typeof proxyFetch }, name: string): Promise<string> {
  const sent = runtime.proxyFetch(new Request("http://a.test"), target, { [name]: false });
  const { message } = (await sent.catch((error: unknown) => error)) as Error;
  expect(message).toMatch(new RegExp(`^fetchway: bad option \`${name}\`: `));
  return message;
}

describe.each([...otherLibraries.keys()])("options of %s", (library) => {
  test.each(foreignNames(library).filter((name) => name !== "target"))(
    "the error for %s is not the one for an unknown option",
    async (name) => {
      const message = await toProxy({ [name]: false });
      // This is the error for a name that is unknown or misspelt.
      expect(message).not.toContain("there is no such option");
      for (const runtime of [bun, deno]) expect(await explain(runtime, name)).toBe(message);
    },
  );
});

test("the error for an option of http-proxy names Fetchway's option with the same effect", async () => {
  const hintFor = async (options: object): Promise<string> =>
    (await toProxy(options)).replace(/^fetchway: bad option `\w+`: /, "");
  expect(await hintFor({ secure: false })).toContain("tls: { rejectUnauthorized: false }");
  expect(await hintFor({ proxyTimeout: 5000 })).toBe("it is called `timeout` here");
  expect(await hintFor({ autoRewrite: true })).toContain("`locationRewrite`");
  expect(await hintFor({ router: {} })).toContain("`target` may be a function");
  expect(await hintFor({ onProxyRes() {} })).toContain("`onResponse`");
  expect(await hintFor({ on: {} })).toContain("`onRequest`, `onResponse`, `onError`");
});

test.each([
  ["onProxyReq", "`onRequest`"],
  ["onProxyReqWs", "`onRequest`"],
  ["onProxyRes", "`onResponse`"],
  ["onOpen", "`onResponse`"],
  ["onClose", "`onRequestEnd`"],
  ["logLevel", "`onRequestEnd`"],
  ["logProvider", "`onRequestEnd`"],
  ["retries", "`retry: { attempts }`"],
  ["healthCheck", "`target: balance([…], { … })`"],
  ["balance", "`target: balance([…], { … })`"],
  ["upstreams", "`target: balance([…], { … })`"],
  ["cors", "docs/recipes.md"],
  ["url", "`target`"],
  ["upstream", "`target`"],
  ["targets", "`target`"],
])("the error for %s, of other libraries or earlier versions, names %s", async (name, fix) => {
  const create = (): unknown => createProxy({ [name]: {} } as never);
  expect(create).toThrow(`fetchway: bad option \`${name}\`: `);
  expect(create).toThrow(fix);
});

test.each([
  ["workerd", workerd],
  ["fetch", anyFetch],
])("the entry %s knows the options of the libraries that run on it", async (_, runtime) => {
  const names = ["h3's `proxyRequest`", "`hono/proxy`"].flatMap(foreignNames);
  expect(names.length).toBeGreaterThan(15);
  for (const name of names) expect(await explain(runtime, name)).not.toContain("no such option");
  // On these runtimes, a proxy has no pool whose options could be meant.
  for (const name of ["pool", "agent", "dispatcher"]) {
    expect(await explain(runtime, name)).toContain(
      "the runtime keeps the connections; leave it out",
    );
  }
});
