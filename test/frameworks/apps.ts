/** The apps of the matrix. Their code is the code blocks of README and docs/. */
import { blocks } from "../project/_blocks.ts";

export interface App {
  /**
   * The packages to install, each in its newest version unless the text has a version. The table shows the version of the first
   * one.
   */
  readonly packages: readonly string[];
  /** The app's files: a text, or the place of a block. */
  readonly files: Readonly<Record<string, string | { place: string }>>;
  /** Texts of the blocks, each with its replacement. */
  readonly replaced?: Readonly<Record<string, string>>;
  /**
   * Commands: a program of the app, or the project's Node or Bun. The port is in the variable PORT, and replaces the argument
   * PORT.
   */
  readonly build?: readonly (readonly string[])[];
  readonly start: readonly string[];
  readonly env?: Readonly<Record<string, string>>;
  /** The TypeScript configuration with which the app is checked; by default, one for Node. */
  readonly types?: string;
  /** What the table says about WebSockets if the code of the page does not handle them. */
  readonly webSockets?: string;
}

/** The target in the blocks. */
export const TARGET = "http://127.0.0.1:4000";

const page = (heading: string): { place: string } => ({ place: `docs/frameworks.md: ${heading}` });
const readme = (heading: string): { place: string } => ({ place: `README.md: ${heading}` });
const PROXY = "proxy.ts";
const onNode = (...packages: string[]): Pick<App, "packages" | "start"> => ({
  packages,
  start: ["node", PROXY],
});
const VITE = ["vite", "--host", "127.0.0.1", "--strictPort", "--port", "PORT"];
/** In version 3.0.0, which the tag `latest` names, route rules do not accept another handler. */
const NITRO = "nitro@3.0.260903-beta";
const REACT = ["react", "react-dom", "@types/react"];
const LAYOUT =
  "export default ({ children }: { children: React.ReactNode }) => <html><body>{children}</body></html>;\n";

export const apps: Readonly<Record<string, App>> = {
  Express: {
    ...onNode("express", "@types/express"),
    files: { [PROXY]: page("Express") },
    webSockets: "with `attach`",
  },
  NestJS: {
    packages: [
      "@nestjs/core",
      "@nestjs/common",
      "@nestjs/platform-express",
      "reflect-metadata",
      "rxjs",
    ],
    files: {
      [PROXY]: page("NestJS"),
      "app.module.ts": `import { Module } from "@nestjs/common";
export class AppModule {}
Module({})(AppModule);
`,
    },
    replaced: { '"/live"': '"/api"', '"/live/"': '"/api/"' },
    start: ["node", PROXY],
  },
  Koa: { ...onNode("koa", "@types/koa"), files: { [PROXY]: page("Koa") } },
  Fastify: { ...onNode("fastify"), files: { [PROXY]: page("Fastify") } },
  Hapi: { ...onNode("@hapi/hapi"), files: { [PROXY]: page("Hapi") } },
  h3: { ...onNode("h3"), files: { [PROXY]: readme("h3") }, webSockets: "with `plugin`" },
  "Hono on Node": {
    ...onNode("hono", "@hono/node-server"),
    files: { [PROXY]: readme("Hono") },
    webSockets: "with `attach`",
  },
  "Hono on Bun": {
    packages: ["hono"],
    files: { [PROXY]: page("Elysia, and Hono on Bun (2)") },
    start: ["bun", PROXY],
  },
  Elysia: {
    packages: ["elysia"],
    files: { [PROXY]: page("Elysia, and Hono on Bun") },
    start: ["bun", PROXY],
  },
  Nuxt: {
    packages: ["nuxt"],
    files: { "server/routes/api/[...].ts": page("Nuxt"), "nuxt.config.ts": "export default {};\n" },
    build: [["nuxt", "build"]],
    start: ["node", ".output/server/index.mjs"],
    types: ".nuxt/tsconfig.server.json",
  },
  "Nuxt on Workers": {
    packages: ["nuxt", "wrangler"],
    files: {
      "server/routes/api/[...].ts": page("Nuxt (2)"),
      "nuxt.config.ts": "export default {};\n",
    },
    build: [["nuxt", "build", "--preset", "cloudflare_module"]],
    start: [
      "wrangler",
      "dev",
      ".output/server/index.mjs",
      "--assets",
      ".output/public",
      "--ip",
      "127.0.0.1",
      "--port",
      "PORT",
    ],
    types: ".nuxt/tsconfig.server.json",
  },
  Nitro: {
    packages: ["nitro"],
    files: { "routes/api/[...path].ts": page("Nitro"), "nitro.config.ts": "export default {};\n" },
    build: [["nitro", "build"]],
    start: ["node", ".output/server/index.mjs"],
  },
  "Nitro, a rule": {
    packages: [NITRO],
    files: { "nitro.config.ts": page("Nitro (2)") },
    build: [["nitro", "build"]],
    start: ["node", ".output/server/index.mjs"],
  },
  "Nitro, in Vite": {
    packages: [NITRO, "vite"],
    files: {
      "vite.config.ts": page("Nitro (3)"),
      "server.ts": 'export default { fetch: () => new Response("app") };\n',
    },
    replaced: { '"/live"': '"/api"' },
    start: VITE,
  },
  Next: {
    packages: ["next", ...REACT, "typescript"],
    files: {
      "app/api/[...path]/route.ts": page("Next"),
      "app/layout.tsx": LAYOUT,
      "app/page.tsx": "export default () => <p>page</p>;\n",
    },
    build: [["next", "build"]],
    start: ["next", "start"],
    types: "tsconfig.json",
  },
  "Next, own server": {
    packages: ["next", ...REACT, "typescript"],
    files: {
      "server.ts": page("Next (2)"),
      // Next ends upgrades for the path of a page. This page covers all paths, so Next would end every upgrade.
      "app/[[...path]]/page.tsx": "export default () => <p>page</p>;\n",
      "app/layout.tsx": LAYOUT,
      // With this file, Next cuts uploads after 10 MB.
      "proxy.ts": "export const proxy = (): void => {};\n",
    },
    build: [["next", "build"]],
    start: ["node", "server.ts"],
    types: "tsconfig.json",
  },
  SvelteKit: {
    packages: [
      "@sveltejs/kit",
      "@sveltejs/adapter-node",
      "@sveltejs/vite-plugin-svelte",
      "svelte",
      "vite",
      "typescript",
    ],
    files: {
      "src/routes/api/[...path]/+server.ts": page("SvelteKit"),
      "src/app.html": "<html><head>%sveltekit.head%</head><body>%sveltekit.body%</body></html>\n",
      "tsconfig.json": '{ "extends": "$app/tsconfig", "include": ["src"] }\n',
      "vite.config.ts": `import adapter from "@sveltejs/adapter-node";
import { sveltekit } from "@sveltejs/kit/vite";
export default { plugins: [sveltekit({ adapter: adapter() })] };
`,
    },
    build: [
      ["svelte-kit", "sync"],
      ["vite", "build"],
    ],
    start: ["node", "build/index.js"],
    env: { BODY_SIZE_LIMIT: "Infinity" },
  },
  Astro: {
    packages: ["astro", "@astrojs/node"],
    files: {
      "src/pages/api/[...path].ts": page("Astro"),
      "astro.config.mjs": `import node from "@astrojs/node";
export default { output: "server", adapter: node({ mode: "standalone" }) };
`,
      "tsconfig.json": '{ "extends": "astro/tsconfigs/strict" }\n',
    },
    build: [["astro", "build"]],
    start: ["node", "dist/server/entry.mjs"],
    types: "tsconfig.json",
  },
  "React Router": {
    packages: ["@react-router/serve", "@react-router/dev", "vite", "isbot", ...REACT],
    files: {
      "app/routes/api.ts": page("React Router"),
      "app/routes.ts": `import { route } from "@react-router/dev/routes";
export default [route("api/*", "routes/api.ts")];
`,
      "app/root.tsx": `import { Outlet } from "react-router";
export default () => <html><body><Outlet /></body></html>;
`,
      "vite.config.ts": `import { reactRouter } from "@react-router/dev/vite";
export default { plugins: [reactRouter()] };
`,
    },
    build: [["react-router", "build"]],
    start: ["react-router-serve", "build/server/index.js"],
  },
  "TanStack Start": {
    packages: [
      "@tanstack/react-start",
      "@tanstack/react-router",
      "vite",
      "@vitejs/plugin-react",
      ...REACT,
    ],
    files: {
      "src/routes/api.$.ts": page("TanStack Start"),
      "src/routes/__root.tsx": `import { createRootRoute } from "@tanstack/react-router";
export const Route = createRootRoute({ component: () => <html><body>page</body></html> });
`,
      "src/router.tsx": `import { createRouter } from "@tanstack/react-router";
import { routeTree } from "./routeTree.gen";
export const getRouter = () => createRouter({ routeTree });
`,
      "vite.config.ts": `import { tanstackStart } from "@tanstack/react-start/plugin/vite";
import react from "@vitejs/plugin-react";
export default { plugins: [tanstackStart(), react()] };
`,
    },
    build: [["vite", "build"]],
    start: ["srvx", "--prod", "-s", "../client", "dist/server/server.js"],
  },
  "Vite, dev server": {
    packages: ["vite"],
    files: { "vite.config.ts": page("Vite") },
    start: VITE,
  },
  "Workers, `wrangler dev`": {
    packages: ["wrangler"],
    files: { [PROXY]: readme("Workers") },
    start: ["wrangler", "dev", PROXY, "--ip", "127.0.0.1", "--port", "PORT"],
  },
};

/** Returns the text of a file of an app. */
export function textOf(file: App["files"][string]): string {
  if (typeof file === "string") return file;
  const block = blocks.find(({ place }) => place === file.place);
  if (block === undefined) throw new Error(`there is no block ${file.place}`);
  return block.code;
}
