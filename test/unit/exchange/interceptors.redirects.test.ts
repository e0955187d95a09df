import { describe, expect, test } from "vitest";
import type { ProxyOptions } from "../../../src/options/proxyoptions.ts";
import type { Interceptor } from "../../../src/transport/port.ts";
import { answering, run, TARGET, to } from "../../helpers/fakes.ts";

const adding =
  (name: string, value: string): Interceptor =>
  (next) =>
  (request, scope) =>
    next({ ...request, headers: [...request.headers, name, value] }, scope);

describe("a redirect to another origin", () => {
  const names = (list: readonly string[]): string[] => list.filter((_, i) => i % 2 === 0);
  const base: ProxyOptions = { followRedirects: true, redirectTargets: "any", xfwd: false };

  test.each<[string, Interceptor]>([
    ["in a copy", adding("X-Secret", "1")],
    [
      "in place",
      (next) => (request, scope) => {
        request.headers.push("X-Secret", "1");
        return next(request, scope);
      },
    ],
  ])(
    "drops the fields that `request` interceptors have added or changed %s",
    async (_, interceptor) => {
      const changing: Interceptor = (next) => (request, scope) => {
        const headers = request.headers.map((each) => (each === "client" ? "changed" : each));
        return next({ ...request, headers }, scope);
      };
      const options = { ...base, interceptors: { request: [interceptor, changing] } };
      const transport = answering(to("/same"), to("http://b.test/"), to(`${TARGET}/back`));
      const headers = ["Host", "a", "X-Client", "1", "X-Both", "client"];
      await run({ headers }, { transport, options });
      expect(transport.hops.map((hop) => names(hop.headers))).toEqual([
        ["X-Client", "X-Both", "X-Secret"],
        ["X-Client", "X-Both", "X-Secret"],
        ["X-Client"],
        ["X-Client"],
      ]);
    },
  );

  test("runs the `attempt` interceptors for each hop, with that hop's origin", async () => {
    const attempt: Interceptor = (next) => (request, scope) => {
      const isOurs = request.upstream.origin === TARGET;
      return (isOurs ? adding("X-Secret", "1")(next) : next)(request, scope);
    };
    const options = { ...base, interceptors: { attempt: [attempt] } };
    const transport = answering(to("http://b.test/"), to(`${TARGET}/back`));
    await run({ headers: ["Host", "a"] }, { transport, options });
    expect(transport.hops.map((hop) => names(hop.headers))).toEqual([
      ["X-Secret"],
      [],
      ["X-Secret"],
    ]);
  });
});
