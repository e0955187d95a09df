/** `proxy.explain` on Node, Bun and Deno. Its code is loaded when it is called for the first time. */
import { expect, test } from "vitest";
import { EVALUATE, startProgram } from "../helpers/program.ts";

const program = (entry: string): string => `
import { createProxy } from ${JSON.stringify(new URL(`../../runtimes/${entry}.ts`, import.meta.url).href)};

const proxy = createProxy({ target: "http://127.0.0.1:1/v1", via: "edge" });
const { request, path, fields } = await proxy.explain(
  new Request("http://shop.example/x", { headers: { accept: "*/*" } }),
);
console.log(request.method, request.path, path.join());
for (const { name, value, reason } of fields) console.log(name.toLowerCase(), value, "|", reason);
await proxy.close();
`;

test.each(Object.entries(EVALUATE))(
  "on %s, `proxy.explain` shows the upstream request, and says where each part of it comes from",
  async (tool, args) => {
    await using child = startProgram(tool, [...args, program(tool)]);
    await child.ended();
    const output = child.output();
    expect(output).toContain("GET /v1/x the target's path or query in front\n");
    expect(output).toContain("host 127.0.0.1:1 | the target's (changeOrigin, RFC 9110 §7.2)\n");
    expect(output).toContain("accept */* | the client's\n");
    expect(output).toContain("via 1.1 edge | names this proxy (RFC 9110 §7.6.3)\n");
    expect(output).toContain("connection keep-alive |");
  },
);
