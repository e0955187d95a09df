import { describe, expect, test } from "vitest";
import { assertReachable, parseTarget } from "../../../src/target/target.ts";
import { isFixed } from "../../../src/pipeline/pipeline.ts";
import { TARGET } from "../../helpers/fakes.ts";

describe("an app", () => {
  const fetch = (): Response => new Response();

  test("without a `url` has the authority app.invalid", () => {
    const app = { fetch };
    expect(parseTarget(app)).toEqual({
      origin: "http://app.invalid",
      host: "app.invalid",
      hostname: "app.invalid",
      secure: false,
      basePath: "",
      query: "",
      socketPath: undefined,
      tls: undefined,
      app,
    });
  });

  test("is parsed once", () => {
    let read = 0;
    const app = {
      fetch,
      get url(): string {
        read++;
        return "https://shop.example/v1?k=1";
      },
    };
    const first = parseTarget(app);
    expect(first).toMatchObject({ origin: "https://shop.example", basePath: "/v1", query: "k=1" });
    expect(parseTarget(app)).toBe(first);
    expect(read).toBe(1);
    expect(parseTarget({ ...app })).not.toBe(first);
  });

  test.each(["ftp://a.test", "/relative", "http://a.test/#b", "http://u:p@a.test"])(
    "refuses the url %j as it would refuse a target",
    (url) => {
      expect(() => parseTarget({ fetch, url })).toThrow(/^fetchway: (?:bad|a) target/);
    },
  );

  test("is suggested by the error for a target that is a Response", () => {
    const parse = (): unknown => parseTarget(fetch());
    expect(parse).toThrow(TypeError);
    expect(parse).toThrow(
      /a Response is not a target; pass the app, not the result of its `fetch`/,
    );
  });

  test("may be a function with a `fetch`, while a target function is not an app", () => {
    const callable = Object.assign(() => "http://a.test", { fetch });
    expect(isFixed(callable)).toBe(true);
    expect(isFixed(() => "http://a.test")).toBe(false);
    expect(isFixed("http://a.test")).toBe(true);
  });
});

describe("assertReachable", () => {
  const client = { name: "fake", capabilities: { unixSocket: false, tls: false } };

  test.each(["host", "changeOrigin: false"])(
    "an app is refused as a target with the option %s, because its `url` has the host",
    (option) => {
      const app = parseTarget({ fetch: () => new Response() });
      expect(() => assertReachable(app, client)).not.toThrow();
      expect(() => assertReachable(app, client, option)).toThrow(TypeError);
      expect(() => assertReachable(app, client, option)).toThrow(
        `bad option \`${option}\`: the in-process client cannot set Host; leave it out`,
      );
      expect(() => assertReachable(parseTarget(TARGET), client, option)).not.toThrow();
    },
  );
});
