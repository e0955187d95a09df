/** Options as other libraries call them, and options in the wrong place: each error says what to write. */
import { readFileSync } from "node:fs";
import { describe, expect, test } from "vitest";
import { createProxy, createTransport, proxyFetch } from "../runtimes/node.ts";
import { poolDefaults } from "../src/options/pool.ts";
import { optionNames } from "../src/options/check.ts";

const target = "http://127.0.0.1:4000";

/** What is said of an option, wherever a proxy takes options. */
async function toProxy(options: object): Promise<string> {
  const sent = proxyFetch(new Request("http://a.test"), target, options);
  const { message } = (await sent.catch((error: unknown) => error)) as Error;
  expect(() => createProxy({ target, ...options })).toThrow(new TypeError(message));
  return message;
}

/** What is said of an option, wherever a pool takes options. */
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

/** The rows of README's table of names: ours, and those of others. */
const rows = Array.from(
  readFileSync(new URL("../README.md", import.meta.url), "utf8")
    .split("What others call them:")[1]
    ?.matchAll(/^\| (`[^|]*) \| ([^|]*)\| ([^|]*)\| ([^|]*)\|$/gm) ?? [],
  (cells) => cells.slice(1).map((cell) => Array.from(cell.matchAll(/`(\w+)`/g), ([, n]) => n)),
);

/** The rows in which others have one name for one option of ours. */
const renamed = rows.flatMap(([ours = [], ...others]) => {
  const [name = ""] = ours;
  if (ours.length !== 1 || !(name in poolDefaults)) return [];
  return others.flat().flatMap((theirs) => (theirs === name || !theirs ? [] : [[theirs, name]]));
});

/** Options of the proxy that a pool has too, as its own. */
const shared = new Set(["timeout", "connectTimeout"]);

describe("README's names", () => {
  test("are found in README", () => {
    expect(renamed).toEqual(
      expect.arrayContaining([
        ["socketActiveTTL", "socketTTL"],
        ["keepAliveMsecs", "keepAliveInitialDelay"],
        ["keepAliveTimeout", "freeSocketTimeout"],
        ["connections", "maxSockets"],
      ]),
    );
  });

  // Node's Agent calls several things `timeout`: that is a name of ours as well.
  test.each(renamed.filter(([theirs]) => theirs !== "timeout"))(
    "%s is suggested as %s",
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

test("agentkeepalive's old names are suggested too", () => {
  for (const old of ["freeSocketKeepAliveTimeout", "keepAliveTimeout"]) {
    expect(toPool({ [old]: 5 })).toMatch(/it is called `freeSocketTimeout` here$/);
  }
});

describe("pool options passed to a proxy", () => {
  const names = [...Object.keys(poolDefaults), "tls", "socketPath"];

  test.each(names.filter((name) => !shared.has(name)))("%s", async (name) => {
    expect(await toProxy({ [name]: 5 })).toBe(
      `fetchway: bad option \`${name}\`: it is an option of the connections; ` +
        `write \`createProxy({ pool: { ${name} } })\`, or \`transport: createTransport({ ${name} })\``,
    );
  });
});

describe("proxy options passed to a pool", () => {
  test.each(optionNames.filter((name) => !shared.has(name)))("%s", (name) => {
    expect(toPool({ [name]: 5 })).toBe(
      `fetchway: bad option \`${name}\`: it is an option of the proxy; pass it to createProxy() or proxyFetch()`,
    );
  });
});

test("agents", async () => {
  for (const name of ["agent", "httpAgent", "httpsAgent", "dispatcher"]) {
    expect(await toProxy({ [name]: {} })).toContain(
      "connections are kept without one; write `createProxy({ pool: { … } })`, or `transport: createTransport({ … })`",
    );
    expect(toPool({ [name]: {} })).toContain("the pool is the agent; leave it out");
  }
  expect(await toProxy({ agent: false })).toContain(
    "write `createProxy({ pool: { keepAlive: false } })`, or `transport: createTransport({ keepAlive: false })`",
  );
});
