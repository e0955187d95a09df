/** A program ends when its work is done, on Node, Bun and Deno: neither idle connections nor timers keep it running. */
import { afterAll, beforeAll, expect, test } from "vitest";
import { EVALUATE, startProgram } from "../helpers/program.ts";
import { Upstream } from "../helpers/upstream.ts";

const upstream = new Upstream();
beforeAll(() => upstream.listen());
afterAll(() => upstream.stop());

// Because the target has a host name, the proxy sets a timer for the next lookup.
const program = (entry: string): string => `
import { createProxy } from ${JSON.stringify(new URL(`../../runtimes/${entry}.ts`, import.meta.url).href)};
const target = ${JSON.stringify(upstream.url.replace("127.0.0.1", "localhost"))};
const proxy = createProxy({ target, pool: { dns: { ttl: 3_600_000 } } });
const { status } = await proxy.fetch(new Request("http://proxy.test/"));
console.log(status);
`;

test.each(Object.entries(EVALUATE))(
  "%s: a program ends although the proxy has an idle connection",
  async (tool, args) => {
    await using child = startProgram(tool, [...args, program(tool)]);
    await child.printed(/200/);
    const since = performance.now();
    await child.ended();
    expect(child.output()).toBe("200\n");
    // The proxy's timers fire after a minute or later: a program that waited for one would end too late.
    expect(performance.now() - since).toBeLessThan(30_000);
  },
);
