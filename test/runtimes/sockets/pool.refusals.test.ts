/** Transports over the runtime's `fetch` do not control connections, so they refuse pool options except `connectTimeout`. */
import { describe, expect, test } from "vitest";
import * as global from "../../../runtimes/fetch.ts";
import * as workerd from "../../../runtimes/workerd.ts";
import { poolDefaults, type PoolOptions } from "../../../src/options/pooloptions.ts";

const target = "http://127.0.0.1:4000";
const { connectTimeout, ...others } = poolDefaults;
const options = { ...others, tls: { ca: "pem" }, socketPath: "/run/app.sock" };

describe.each([
  ["workerd", workerd, "Workers have no connections of their own"],
  ["fetch", global, "the connections are those of the global fetch"],
] as const)("the transport of fetchway/%s", (name, runtime, whose) => {
  test.each(Object.entries(options))("the pool option %s is refused", (option, value) => {
    const pool = { [option]: value } as PoolOptions;
    const message = `fetchway: bad option \`${option}\`: ${whose}; leave it out`;
    expect(() => runtime.createTransport(pool)).toThrow(new TypeError(message));
    expect(() => runtime.createProxy({ target, pool })).toThrow(new TypeError(message));
  });

  test("the transport accepts connectTimeout as a pool option, and createProxy as an option", () => {
    expect(runtime.createTransport({ connectTimeout }).name).toBe(name);
    expect(runtime.createProxy({ target, connectTimeout }).stats()).toBeUndefined();
  });

  test("an unknown pool option, and a wrong connectTimeout, are refused by errors that name the fix", () => {
    const unknown = { sockets: 1 } as PoolOptions;
    expect(() => runtime.createTransport(unknown)).toThrow(`\`sockets\`: ${whose}; leave it out`);
    expect(() => runtime.createTransport({ connectTimeout: -1 })).toThrow(
      "`connectTimeout`: use whole milliseconds",
    );
  });
});
