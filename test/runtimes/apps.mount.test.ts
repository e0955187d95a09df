/** Apps of h3 on Bun and Deno that mount the proxy at a path: redirects of the upstream stay below that path. */
import { rmSync, writeFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { beforeAll, expect, test } from "vitest";
import { useApps } from "../helpers/apps.ts";
import { startProgram } from "../helpers/program.ts";

const { upstream } = useApps();
const app = new URL(`../../examples/_mount-${process.pid}.ts`, import.meta.url);

beforeAll(() => {
  // The file is in examples/, because the runtime finds h3 and `#fetchway` from there.
  writeFileSync(
    app,
    `import { H3, serve } from "h3";
     import { createProxy } from "#fetchway";
     const { fetch } = createProxy({ target: process.env.TARGET });
     const server = serve(new H3().mount("/api", fetch), { port: 0, hostname: "127.0.0.1", silent: true });
     await server.ready();
     console.log("at", server.url);`,
  );
  return () => rmSync(app);
});

test.each([
  ["bun", ["run"]],
  ["deno", ["run", "-A"]],
])(
  "on %s, a redirect of the upstream stays below the path at which h3 mounts the proxy",
  async (tool, args) => {
    upstream.script = (call) => call.reply(302, [["Location", "/login"]]);
    const env = { TARGET: upstream.url };
    await using program = startProgram(tool, [...args, fileURLToPath(app)], env);
    const [, origin] = await program.printed(/at (http:\S+?)\/?\n/);
    const { headers } = await fetch(`${origin}/api/x?y`, { redirect: "manual" });
    expect(headers.get("location")).toBe("/api/login");
    expect(upstream.calls.map(({ target }) => target)).toEqual(["/x?y"]);
  },
);
