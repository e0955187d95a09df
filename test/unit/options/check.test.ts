/** Checks of the options object as a whole. The values of each option are tested in options.test.ts. */
import { expect, test } from "vitest";
import type { ProxyOptions } from "../../../src/options/proxyoptions.ts";
import { checkPoolOptions } from "../../../src/options/poolcheck.ts";
import { compile } from "../../../src/plan.ts";
import type { PoolOptions } from "../../../src/options/pooloptions.ts";
import { FakeTransport } from "../../helpers/fakes.ts";

test("an unknown option is refused", () => {
  const given = (): unknown => compile({ timeOut: 5 } as ProxyOptions, () => new FakeTransport());
  expect(given).toThrow(TypeError);
  expect(given).toThrow(
    /^fetchway: bad option `timeOut`: there is no such option; did you mean `timeout`\?/,
  );
});

test("redirectTargets is refused if followRedirects is not set, but accepted if it is set, even to false", () => {
  const given = (others: ProxyOptions) => (): unknown =>
    compile({ redirectTargets: "any", ...others }, () => new FakeTransport());
  expect(given({})).toThrow(TypeError);
  expect(given({})).toThrow(/`redirectTargets` does nothing without `followRedirects`; set that/);
  for (const followRedirects of [true, false, 0, 3])
    expect(given({ followRedirects })).not.toThrow();
});

test.each([null, "timeout", 5, [], new Map(), () => {}])("%j is refused as options", (options) => {
  const given = (): unknown => compile(options as ProxyOptions, () => new FakeTransport());
  expect(given).toThrow(TypeError);
  expect(given).toThrow(/^fetchway: options must be an object such as \{ timeout: 5000 \}/);
});

test.each(["__proto__", "constructor", "toString"])("%s is refused as an option", (name) => {
  const options = JSON.parse(`{ "${name}": { "timeout": 1 } }`) as ProxyOptions;
  const given = (): unknown => compile(options, () => new FakeTransport());
  expect(given).toThrow(`fetchway: bad option \`${name}\`: there is no such option`);
});

test.each([
  [{ tls: [] }, "`tls`: use an object such as"],
  [{ tls: new Map() }, "`tls`: use an object such as"],
  [{ dns: [] }, "`dns`: use false, or { ttl, servers }"],
  [{ dns: new Map() }, "`dns`: use false, or { ttl, servers }"],
  [JSON.parse('{ "__proto__": {} }'), "`__proto__`: there is no such option"],
] as [PoolOptions, string][])("%j is refused as the options of a pool", (options, message) => {
  expect(() => checkPoolOptions(options)).toThrow(TypeError);
  expect(() => checkPoolOptions(options)).toThrow(`fetchway: bad option ${message}`);
});
