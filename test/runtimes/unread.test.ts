/** Responses that an app does not read, on Node, Bun and Deno: `idleTimeout` gives their connections back. */
import { afterAll, beforeAll, expect, test } from "vitest";
import { EVALUATE, startProgram } from "../helpers/program.ts";
import { Upstream } from "../helpers/upstream.ts";

const SIZE = 3_000_000;
const upstream = new Upstream();
beforeAll(async () => {
  await upstream.listen();
  upstream.script = (call) => {
    call.write(`HTTP/1.1 200 OK\r\nContent-Length: ${SIZE}\r\n\r\n`);
    return call.pour(SIZE);
  };
});
afterAll(() => upstream.stop());

const program = (entry: string, more: string): string => `
import { createProxy } from ${JSON.stringify(new URL(`../../runtimes/${entry}.ts`, import.meta.url).href)};

const proxy = createProxy({ target: ${JSON.stringify(upstream.url)}, idleTimeout: 1000, log: false, ${more} });
const ask = () => proxy.fetch(new Request("http://proxy.test/"));
const pause = (ms) => new Promise((resolve) => setTimeout(resolve, ms));
const inUse = () => Object.values(proxy.stats().origins)[0].inUse;
const print = (name, value) => console.log(name + ": " + value);

for (let i = 0; i < 3; i++) await ask();
print("dropped", inUse());
while (inUse() > 0) await pause(50);
print("given back", true);

// Each pause is longer than the limit. Because the reader has begun, the proxy waits for it.
async function readSlowly({ body }) {
  let length = 0;
  const reader = body.getReader();
  for (let i = 0; i < 2; i++) {
    length += (await reader.read()).value.byteLength;
    await pause(1600);
  }
  for (let next; !(next = await reader.read()).done;) length += next.value.byteLength;
  return length;
}
const slow = readSlowly(await ask()).catch(String);
const [, copy] = (await ask()).body.tee();
const copied = readSlowly({ body: copy }).catch(String);
print("slow reader", await slow);
print("copy", await copied);
proxy.destroy();
`;

const options: Readonly<Record<string, string>> = {
  "": "",
  ", also with `onRequestEnd`": "onRequestEnd() {}",
};
const cases = Object.entries(EVALUATE).flatMap(([tool, args]) =>
  Object.entries(options).map(([name, more]) => [tool, name, args, more] as const),
);

test.each(cases)(
  "%s: the connection of a response that no code keeps becomes free%s, and a slow reader gets the whole response",
  async (tool, _, args, more) => {
    await using child = startProgram(tool, [...args, program(tool, more)]);
    await child.ended();
    expect(child.output()).toBe(
      `dropped: 3\ngiven back: true\nslow reader: ${SIZE}\ncopy: ${SIZE}\n`,
    );
  },
);
