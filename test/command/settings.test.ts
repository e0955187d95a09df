/** How flags and a config file become settings, and when two settings are the same. */
import { describe, expect, test } from "vitest";
import { serverDefaults } from "../../command/flags/commandoptions.ts";
import {
  type GivenFlags,
  isSame,
  type ReadConfig,
  toSettings,
} from "../../command/config/settings.ts";

const none: GivenFlags = { server: {}, proxy: {}, routes: [], target: undefined };

test("a target without routes becomes a route for all requests, with the options of the flags", () => {
  const flags = { ...none, server: { port: 1 }, proxy: { timeout: 5 }, target: "http://a" };
  expect(toSettings(flags, undefined, { tls: { servername: "a" } })).toEqual({
    server: { ...serverDefaults, port: 1 },
    routes: [
      {
        match: ["/"],
        options: { target: "http://a", timeout: 5, pool: { tls: { servername: "a" } } },
      },
    ],
  });
});

test("the host may be an IPv6 address in brackets, as in a URL", () => {
  const flags = { ...none, server: { host: "[::1]" }, target: "http://a" };
  expect(toSettings(flags).server.host).toBe("::1");
});

const config: ReadConfig = {
  server: { port: 1, host: "::" },
  timeout: 1,
  idleTimeout: 1,
  pool: { maxSockets: 1, maxQueued: 1 },
  target: "http://all",
  routes: [
    { match: "/a/", target: "http://a", timeout: 2, pool: { maxSockets: 2 } },
    { match: ["/b", "B.example"], target: "http://b" },
  ],
};

describe("precedence", () => {
  test("a route's options take precedence over the file's, and so does each option of its pool", () => {
    const { server, routes } = toSettings(none, config);
    expect(server).toEqual({ ...serverDefaults, port: 1, host: "::" });
    expect(routes).toEqual([
      {
        match: ["/a"],
        options: {
          target: "http://a",
          timeout: 2,
          idleTimeout: 1,
          pool: { maxSockets: 2, maxQueued: 1 },
        },
      },
      {
        match: ["/b", "b.example/"],
        options: {
          target: "http://b",
          timeout: 1,
          idleTimeout: 1,
          pool: { maxSockets: 1, maxQueued: 1 },
        },
      },
      {
        match: ["/"],
        options: {
          target: "http://all",
          timeout: 1,
          idleTimeout: 1,
          pool: { maxSockets: 1, maxQueued: 1 },
        },
      },
    ]);
  });

  test("a route of the command line replaces the file's route for the same path only if their conditions are equal", () => {
    const get = { method: "GET" };
    const given = { match: ["/b"], when: get, options: { target: "http://mine" } };
    const { routes } = toSettings(
      { ...none, routes: [given] },
      {
        routes: [
          { match: "/b", target: "http://b" },
          { match: "/b", when: { ...get }, target: "http://get" },
        ],
      },
    );
    expect(routes.map(({ match, when, options }) => [match, when, options.target])).toEqual([
      [["/b"], get, "http://mine"],
      [["/b"], undefined, "http://b"],
    ]);
  });

  test("flags take precedence over the file, and a route's own flags over the others", () => {
    const { server, routes } = toSettings(
      {
        server: { port: 3 },
        proxy: { timeout: 3, pool: { maxSockets: 3 } },
        routes: [
          {
            match: ["/b", "/c"],
            options: { target: "http://c", timeout: 4, pool: { maxQueued: 4 } },
          },
        ],
        target: "http://mine",
      },
      config,
    );
    expect([server.port, server.host]).toEqual([3, "::"]);
    const shown = routes.map(({ match, options: { target, timeout, pool } }) => [
      match.join(),
      target,
      timeout,
      pool?.maxSockets,
      pool?.maxQueued,
    ]);
    // Routes of the command line have replaced the file's "/b" and "/".
    expect(shown).toEqual([
      ["/b,/c", "http://c", 4, 3, 4],
      ["/", "http://mine", 3, 3, 1],
      ["/a", "http://a", 3, 3, 1],
      ["b.example/", "http://b", 3, 3, 1],
    ]);
  });
});

test("with the user's own transport, the command's default pool options are left out, and the user's are kept", () => {
  const fetch = (): Response => new Response();
  const base = { tls: { servername: "a" } };
  const pools = (file: ReadConfig): unknown[] =>
    toSettings(none, file, base).routes.map(({ options }) => options.pool);
  expect(pools({ target: "http://a", fetch })).toEqual([undefined]);
  // These options are kept, so that `createProxy` can refuse `fetch` and `pool` together.
  expect(pools({ target: "http://a", fetch, pool: { maxSockets: 1 } })).toEqual([
    { maxSockets: 1 },
  ]);
});

describe("the comparison of two settings", () => {
  const hook = (): void => {};
  const make = (): unknown => ({ a: [1, { b: null }], c: "d", hook });
  test.each([
    [make(), make(), true],
    [1, "1", false],
    [{ a: 1 }, { a: 1, b: undefined }, false],
    [{ b: undefined }, { c: undefined }, false],
    [[1], { 0: 1 }, false],
    [[1, 2], [1], false],
    [{ hook }, { hook: () => {} }, false],
    [new Map(), new Map(), false],
    [NaN, NaN, true],
    [null, {}, false],
  ])("%j and %j are the same: %j", (one, other, same) => {
    expect(isSame(one, other)).toBe(same);
  });
});
