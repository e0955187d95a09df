import { describe, expect, test } from "vitest";
import { type FetchTarget, isApp, urlOf } from "../../../src/target/app.ts";
import { parseTarget } from "../../../src/target/target.ts";

const fetch = (): Response => new Response();

/** Creates an object like workerd's stubs: every property is an inherited function, and there is no own property. */
function createStub(): FetchTarget {
  const every = new Proxy(Object.prototype, { has: () => true, get: () => () => {} });
  return Object.create(every) as FetchTarget;
}

class Service {
  fetch = fetch;
  url(): string {
    return "not an address";
  }
}

describe("isApp", () => {
  test.each<[string, unknown]>([
    ["an object with a fetch", { fetch }],
    ["an object that inherits a fetch", Object.create({ fetch })],
    ["a stub", createStub()],
    ["a function with a fetch", Object.assign(() => {}, { fetch })],
  ])("accepts %s", (_, target) => expect(isApp(target)).toBe(true));

  test.each<[string, unknown]>([
    ["a string", "http://a.test"],
    ["a URL", new URL("http://a.test")],
    ["an object without a fetch", { url: "http://a.test" }],
    ["an object whose fetch is not a function", { fetch: "http://a.test" }],
    ["a function", fetch],
    ["null", null],
    ["undefined", undefined],
  ])("does not accept %s", (_, target) => expect(isApp(target)).toBe(false));
});

describe("urlOf", () => {
  const url = new URL("https://shop.example/base?k=1");
  test.each<[string, FetchTarget, string | URL]>([
    ["a string", { fetch, url: "https://shop.example" }, "https://shop.example"],
    ["a URL", { fetch, url }, url],
    ["the value of a getter", Object.create({ fetch, url }) as FetchTarget, url],
    ["the default for an app without `url`", { fetch }, "http://app.invalid"],
    ["the default for a stub", createStub(), "http://app.invalid"],
    [
      "the default for a method called url",
      new Service() as unknown as FetchTarget,
      "http://app.invalid",
    ],
    [
      "the default for undefined",
      { fetch, url: undefined } as unknown as FetchTarget,
      "http://app.invalid",
    ],
  ])("returns %s", (_, app, expected) => expect(urlOf(app)).toBe(expected));

  test.each<[object, RegExp]>([
    [{ socketPath: "/run/a" }, /both `fetch` and `socketPath`; leave out one of them/],
    [{ tls: {} }, /both `fetch` and `tls`; leave out one of them/],
    [{ url: 42 }, /bad target 42: write "http:/],
    [{ url: null }, /bad target null: use a URL such as/],
  ])("an app with %j is refused by parseTarget", (more, message) => {
    const read = (): unknown => parseTarget({ fetch, ...more });
    expect(read).toThrow(TypeError);
    expect(read).toThrow(message);
  });
});
