/** Members that the proxies of an entry lack, but Node's proxies have: they are defined, and throw when they are read. */
import { expect, test } from "vitest";
import { createProxy as createBun } from "../../runtimes/bun.ts";
import { createProxy as createDefault } from "../../runtimes/default.ts";
import { createProxy as createDeno } from "../../runtimes/deno.ts";
import type { NodeProxy } from "../../runtimes/node.ts";

const entries = { default: createDefault, bun: createBun, deno: createDeno };

test.each(Object.entries(entries))(
  "%s: reading a member that this entry's proxies lack throws a TypeError that names the entry for Node",
  (_, create) => {
    const proxy = create({ target: "http://a.test" }) as NodeProxy;
    const names = ["nodeHandler", "attach", "plugin", "upgrade"] as const;
    for (const name of create === createDefault
      ? ([...names, "explain", "moveWaiting"] as const)
      : names) {
      const read = (): unknown => proxy[name];
      expect(read, name).toThrow(TypeError);
      expect(read, name).toThrow(`${name}: write import { createProxy } from "fetchway/node"`);
    }
    expect({ ...proxy }.fetch).toBe(proxy.fetch);
    expect(Object.keys(proxy)).not.toContain("nodeHandler");
  },
);
