/** The contestants from npm. Each is a program on Node, as its README shows it. Some are programs of the benchmarks. */
import { join } from "node:path";
import { findPort } from "../../helpers/serve.ts";
import type { Contestant } from "../contestant.ts";
import { effectsOf, type Hardenings, launch, packageVersionOf, root } from "./_launch.ts";

/**
 * Returns a contestant that is a program on Node.
 * @param program its file in the repository
 * @param packages the packages that it uses
 */
function onNode(
  name: string,
  program: string,
  packages: readonly string[],
  hardenings: Hardenings<object> = {},
): Contestant {
  return {
    name,
    source: "npm",
    hardenings: effectsOf(hardenings),
    async start({ upstream, hardening = "" }) {
      const version = packages.map((each) => `${each} ${packageVersionOf(each)}`).join(", ");
      const [options = {}] = hardenings[hardening] ?? [];
      const port = await findPort();
      const started = await launch([process.execPath, join(root, program)], port, {
        TARGET: `http://127.0.0.1:${upstream}`,
        OPTIONS: JSON.stringify(options),
      });
      return { ...started, version, configuration: program };
    },
  };
}

const BENCH = "bench/contestants";
const PROGRAMS = "test/compare/contestants/programs";

const ofHttpxy: Hardenings<object> = {
  'headers: { via: "1.1 httpxy" }': [{ headers: { via: "1.1 httpxy" } }, "Sends Via."],
};
const manualRedirect: Hardenings<object> = {
  'redirect: "manual"': [
    { redirect: "manual" },
    "Passes redirects to the client instead of following them.",
  ],
};

export const npm: readonly Contestant[] = [
  onNode("httpxy", `${BENCH}/httpxy-server.ts`, ["httpxy"], ofHttpxy),
  onNode("http-proxy-3", `${BENCH}/http-proxy-3.ts`, ["http-proxy-3"], {
    'headers: { via: "1.1 http-proxy-3" }': [
      { headers: { via: "1.1 http-proxy-3" } },
      "Sends Via.",
    ],
    "xfwd: true": [
      { xfwd: true },
      "Appends to X-Forwarded-For, -Port and -Proto, and sends X-Forwarded-Host.",
    ],
  }),
  onNode("hpm", `${BENCH}/http-proxy-middleware.ts`, ["http-proxy-middleware", "httpxy"], ofHttpxy),
  onNode("fastify", `${BENCH}/fastify.ts`, ["@fastify/http-proxy", "fastify"]),
  onNode("h3", `${BENCH}/h3-own.ts`, ["h3", "srvx"], {
    'headers: { via: "1.1 h3" }': [{ headers: { via: "1.1 h3" } }, "Sends Via."],
    'filterHeaders: ["forwarded"]': [
      { filterHeaders: ["forwarded"] },
      "Removes a Forwarded field that the client sent.",
    ],
    "xfwd: true": [
      { xfwd: true },
      "Appends to X-Forwarded-For, and replaces X-Forwarded-Proto, -Host and -Port.",
    ],
  }),
  onNode("hono", `${BENCH}/hono-own.ts`, ["hono", "@hono/node-server"], {
    ...manualRedirect,
    "strictConnectionProcessing: true": [
      { strictConnectionProcessing: true },
      "Removes the fields that Connection names.",
    ],
  }),
  onNode(
    "express-http-proxy",
    `${PROGRAMS}/express-http-proxy.ts`,
    ["express-http-proxy", "express"],
    {
      "parseReqBody: false": [
        { parseReqBody: false },
        "Sends a request body while it arrives, of any size.",
      ],
    },
  ),
  onNode(
    "remix",
    `${PROGRAMS}/remix.ts`,
    ["@remix-run/fetch-proxy", "@remix-run/node-fetch-server"],
    manualRedirect,
  ),
];
