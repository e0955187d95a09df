import { afterEach, describe, expect, test, vi } from "vitest";
import * as bun from "../../../runtimes/bun.ts";
import * as deno from "../../../runtimes/deno.ts";
import * as node from "../../../runtimes/node.ts";
import { checkVersion, OLDEST } from "../../../runtimes/sockets/versions.ts";

afterEach(() => vi.unstubAllGlobals());

test("versions of runtimes are compared as numbers", () => {
  for (const version of ["22.4.0", "22.19.0", "100.0.0"]) {
    expect(checkVersion("Node", version)).toBeUndefined();
  }
  for (const version of ["22.3.0", "20.20.2", "4.5.6"]) {
    expect(checkVersion("Node", version)).toBe(`Node ${version} is too old: use 22.4.0 or newer`);
  }
});

describe.each([
  ["Node", node, "process", (version: string) => ({ versions: { node: version } })],
  ["Bun", bun, "Bun", (version: string) => ({ version })],
  ["Deno", deno, "Deno", (version: string) => ({ version: { deno: version } })],
] as const)("the entry for %s", (runtime, entry, name, fake) => {
  const pretend = (version: string): void => {
    const fields = Object.entries<unknown>(fake(version)).map(
      ([key, value]) => [key, { value }] as const,
    );
    const real = (Reflect.get(globalThis, name) ?? {}) as object;
    vi.stubGlobal(name, Object.create(real, Object.fromEntries(fields)));
  };

  test("on an older version of the runtime, creating a proxy fails with an error that names the required version", () => {
    pretend("1.0.0");
    const message = `fetchway: ${runtime} 1.0.0 is too old: use ${OLDEST[runtime]} or newer`;
    expect(() => entry.createTransport()).toThrow(TypeError);
    expect(() => entry.createTransport()).toThrow(message);
    expect(() => entry.createProxy({ target: "http://a.test" })).toThrow(message);
  });

  test("the minimum version of the runtime is accepted", () => {
    pretend(OLDEST[runtime]);
    expect(() => entry.createTransport()).not.toThrow();
  });
});
