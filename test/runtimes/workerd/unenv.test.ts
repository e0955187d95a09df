/**
 * Workers that are bundled as Nitro's preset for Cloudflare does: unenv replaces Node's modules and globals. None of its
 * polyfills may be in the bundle, and the Worker runs in Miniflare.
 */
import { join } from "node:path";
import { build } from "esbuild";
import { Miniflare, type MiniflareOptions } from "miniflare";
import { defineEnv } from "unenv";
import { afterAll, afterEach, beforeAll, describe, expect, test } from "vitest";
import { Upstream } from "../../helpers/upstream.ts";
import { within } from "../../helpers/wait.ts";

const root = join(import.meta.dirname, "../../..");
const { env } = defineEnv({ nodeCompat: true });
const upstream = new Upstream();

/** The source of a module with unenv's replacements of Node's globals. The bundler includes those that the code uses. */
const globals = Object.entries(env.inject)
  .map(([name, from]) => {
    const [module, member = "default"] = [from].flat();
    return `export { ${member} as ${name} } from "${module}";`;
  })
  .join("\n");

interface Bundle {
  text: string;
  /** The files of unenv that the bundle includes. */
  polyfills: string[];
}

async function bundle(code: string, conditions: string[]): Promise<Bundle> {
  const { metafile, outputFiles } = await build({
    stdin: { contents: code, resolveDir: root, loader: "ts" },
    absWorkingDir: root,
    bundle: true,
    write: false,
    metafile: true,
    format: "esm",
    platform: "neutral",
    target: "es2024",
    conditions,
    alias: env.alias,
    inject: ["unenv-globals"],
    plugins: [
      {
        name: "globals",
        setup(bundler) {
          bundler.onResolve({ filter: /^unenv-globals$/ }, ({ path }) => ({
            path,
            namespace: "globals",
            sideEffects: false,
          }));
          bundler.onLoad({ filter: /./, namespace: "globals" }, () => ({
            contents: globals,
            resolveDir: root,
          }));
        },
      },
    ],
  });
  const [output] = Object.values(metafile.outputs);
  const used = Object.entries(output?.inputs ?? {}).filter(
    ([, { bytesInOutput }]) => bytesInOutput > 0,
  );
  return {
    text: outputFiles[0]?.text ?? "",
    polyfills: used.map(([file]) => file).filter((file) => file.includes("unenv")),
  };
}

/** Returns the source of a Worker that imports an entry and the other modules of Fetchway that a Worker can use. */
const workerOf = (entry: string, target: string): string => `
  import { createProxy } from "${entry}";
  import { transformText } from "./src/bodies.ts";
  import { proxySchema } from "./src/options.ts";
  import { pathOf } from "./src/requests.ts";
  import { ProxyError } from "./src/transport.ts";
  import { balance } from "./src/upstreams/balance.ts";
  import { createRuleHandler } from "./integrations/rules.ts";

  const proxy = createProxy({
    target: balance(["${target}"]),
    followRedirects: true,
    interceptors: { request: [transformText((text) => text.replace("old", "new"))] },
  });
  globalThis.used = [proxySchema, ProxyError, createRuleHandler];
  export default {
    fetch: (request) => pathOf(request.url) === "/own" ? new Response("own") : proxy.fetch(request),
  };
`;

const serverOf = (target: string): string => `
  import server from "./runtimes/server.ts";
  const vars = { FETCHWAY_TARGET: "${target}", FETCHWAY_OPTIONS: { followRedirects: true } };
  export default { fetch: (request, _, execution) => server.fetch(request, vars, execution) };
`;

/** The Workers by name. Each has a function that returns its source, and the conditions of its bundler. */
const workers: Record<string, [code: (target: string) => string, conditions: string[]]> = {
  workerd: [(target) => workerOf("#fetchway", target), ["workerd"]],
  default: [(target) => workerOf("#fetchway", target), []],
  fetch: [(target) => workerOf("./runtimes/fetch.ts", target), ["workerd"]],
  server: [serverOf, ["workerd"]],
};
const bundles: Record<string, Bundle> = {};
let miniflare: Miniflare;

beforeAll(async () => {
  await upstream.listen();
  for (const [name, [code, conditions]] of Object.entries(workers)) {
    bundles[name] = await bundle(code(upstream.url), conditions);
  }
  miniflare = new Miniflare({
    host: "127.0.0.1",
    port: 0,
    cf: false,
    telemetry: { enabled: false },
    workers: Object.entries(bundles).map(([name, { text: contents }]) => ({
      config: {
        name,
        compatibilityDate: "2026-10-01",
        compatibilityFlags: ["enable_request_signal"],
        manifest: {
          mainModule: "index.mjs",
          modulesRoot: "/",
          modules: { "index.mjs": { type: "esm", contents } },
        },
      },
      dev: { unsafeDirectSockets: [{ host: "127.0.0.1", port: 0 }] },
    })),
  } as MiniflareOptions);
  await miniflare.ready;
});
afterEach(() => upstream.reset());
afterAll(async () => {
  await miniflare.dispose();
  await upstream.stop();
});

test("the check for unenv's polyfills finds a polyfill of a module and a polyfill of a global", async () => {
  const { polyfills } = await bundle(
    'import { join } from "node:path"; console.log(join("a"), Buffer.from("a"));',
    ["workerd"],
  );
  expect(polyfills.join()).toMatch(/unenv.*path.*unenv.*buffer|unenv.*buffer.*unenv.*path/);
});

describe.each(Object.keys(workers))("the Worker %s", (name) => {
  const ask = async (path: string, init?: RequestInit): Promise<Response> =>
    fetch(new URL(path, await miniflare.unsafeGetDirectURL(name)), init);

  test("contains none of unenv's polyfills", () => {
    expect(bundles[name]?.polyfills).toEqual([]);
  });

  test("forwards a GET and a POST", async () => {
    upstream.script = async (call) => {
      await call.done;
      call.reply(
        200,
        [["Content-Type", "text/plain"]],
        `${call.method} ${call.target} ${call.text}`,
      );
    };
    expect(await (await ask("/a?b")).text()).toBe("GET /a?b ");
    expect(await (await ask("/c", { method: "POST", body: "x" })).text()).toBe("POST /c x");
  });

  test("streams a response while it arrives", async () => {
    upstream.script = (call) => {
      call.write("HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\ndata: 1\n\n");
    };
    const { body } = await ask("/events");
    const reader = body?.getReader();
    const first = reader && (await within(reader.read(), "the first event"));
    expect(new TextDecoder().decode(first?.value)).toBe("data: 1\n\n");
    await reader?.cancel();
  });

  test("sends a body again to the location of a 307", async () => {
    upstream.script = async (call) => {
      await call.done;
      if (call.target === "/from") call.reply(307, [["Location", "/to"]]);
      else call.reply(200, [], call.text);
    };
    expect(await (await ask("/from", { method: "POST", body: "again" })).text()).toBe("again");
    expect(upstream.calls.map(({ target, text }) => [target, text])).toEqual([
      ["/from", "again"],
      ["/to", "again"],
    ]);
  });
});
