/**
 * A plugin for Vite: `fetchway/vite`. Its dev server and its preview server forward requests and WebSockets to upstreams.
 * @module
 */
import type { IncomingMessage } from "node:http";
import type { Server } from "node:net";
import {
  type AttachOptions,
  createProxy,
  type CreateProxyOptions,
  type NodeHandler,
  type NodeProxy,
} from "#fetchway/node";
import { describeWait, explainError } from "#fetchway/errors";
import { quoteInput, isRecord } from "#fetchway/options";

export type { CreateProxyOptions } from "#fetchway";

/** Where the requests below each path prefix go: a target, or the options of a proxy. */
export type ViteRoutes = Readonly<
  Record<string, CreateProxyOptions["target"] | CreateProxyOptions>
>;

/** The part of Vite's dev server or preview server that the plugin uses. */
export interface ViteServer {
  /** The handlers of requests. */
  readonly middlewares: { use(handler: NodeHandler): unknown };
  /** Node's server; null in middleware mode. */
  readonly httpServer: Server | null;
  readonly config: {
    readonly logger: { info(message: string): void; error(message: string): void };
  };
}

/** The plugin. The type is not imported from Vite, so that the package works with several versions of Vite. */
export interface VitePlugin {
  readonly name: string;
  readonly configureServer: (server: ViteServer) => void;
  readonly configurePreviewServer: (server: ViteServer) => void;
  /** Functions for apps and other plugins. */
  readonly api: {
    /**
     * Makes the proxies take the WebSockets of a server. Call it only in middleware mode, in which Vite does not know the
     * server.
     * @param options whether WebSockets pass the app's routes and middleware first: `{ routes: true }`
     * @returns a function that detaches the proxies
     */
    attach(server: Server, options?: Pick<AttachOptions, "routes">): () => void;
  };
}

interface ViteRoute {
  readonly prefix: string;
  readonly proxy: NodeProxy;
}

/** Milliseconds for which requests wait for an upstream that restarts, unless the route has the option `wait`. */
const WAIT = 5_000;

/** The subprotocols of the WebSockets by which Vite's own client receives its updates. */
const OWN_PROTOCOLS: ReadonlySet<string | undefined> = new Set(["vite-hmr", "vite-ping"]);

/**
 * Creates a plugin for Vite that forwards requests and WebSockets by their path.
 *
 * A prefix matches whole segments: `"/api"` matches `/api` and `/api/x`, and not `/apix`; the longest prefix takes precedence.
 * The prefix stays in the path unless `stripPrefix` removes it. Vite's own WebSocket is left to Vite, and so are all requests
 * that match no prefix. If a request gets no response from the upstream, Vite's logger logs that, unless the client has
 * disconnected, or the route has `onError`.
 *
 * While an upstream restarts, requests wait up to 5 s for it, and Vite's logger says so. The option `wait` of a route changes
 * that time, and `wait: 0` lets requests fail immediately.
 * @throws TypeError that names each bad prefix and each bad option with its route, and the fix
 * @example
 * ```ts
 * // vite.config.ts
 * import { viteProxy } from "fetchway/vite";
 *
 * export default {
 *   plugins: [
 *     viteProxy({
 *       "/api": "http://127.0.0.1:4000",
 *       "/live": { target: "http://127.0.0.1:5000", stripPrefix: "/live" },
 *     }),
 *   ],
 * };
 * ```
 */
export function viteProxy(routes: ViteRoutes): VitePlugin {
  let logger: ViteServer["config"]["logger"] | undefined;
  const report: CreateProxyOptions["onError"] = (error, request) => {
    const { status } = error;
    // If the client has disconnected, for example because a page was reloaded, log nothing: this is not a failure.
    if (status === 499) return;
    const { pathname } = new URL(request.url);
    logger?.error(`fetchway: ${request.method} ${pathname}: ${status} ${explainError(error)}`);
  };
  const logWait: CreateProxyOptions["onWait"] = (change) =>
    logger?.info(`fetchway: ${describeWait(change)}`);

  if (!isRecord(routes)) {
    throw new TypeError(
      'fetchway: viteProxy(routes) takes an object such as { "/api": "http://127.0.0.1:4000" }',
    );
  }
  const made = Object.entries(routes).map(([prefix, route]) => {
    // An option that is `undefined` counts as not set.
    const { wait = WAIT, onWait = logWait, onError = report, ...others } = toOptions(route);
    return createRoute(prefix, { ...others, wait, onWait, onError });
  });
  const mistakes = made.flatMap((each) => (Array.isArray(each) ? each : []));
  const sorted = made
    .flatMap((each) => (Array.isArray(each) ? [] : each))
    .toSorted((a, b) => b.prefix.length - a.prefix.length);
  if (mistakes.length > 0) {
    for (const { proxy } of sorted) proxy.destroy();
    throw new TypeError(mistakes.join("\n"));
  }

  function find({ url = "" }: { readonly url?: string | undefined }): ViteRoute | undefined {
    return sorted.find(({ prefix }) => {
      const next = url[prefix.length];
      return url.startsWith(prefix) && (next === undefined || next === "/" || next === "?");
    });
  }

  function attach(server: Server, options?: Pick<AttachOptions, "routes">): () => void {
    const detach = sorted.map((route) =>
      route.proxy.attach(server, {
        ...options,
        match: (req) => !isOwn(req) && find(req) === route,
      }),
    );
    return () => detach.forEach((each) => each());
  }

  function configure(server: ViteServer): void {
    ({ logger } = server.config);
    server.middlewares.use((req, res, next) => {
      const route = find(req);
      if (route === undefined) next?.();
      else route.proxy.nodeHandler(req, res, next);
    });
    if (server.httpServer !== null) attach(server.httpServer);
  }

  return {
    name: "fetchway",
    configureServer: configure,
    configurePreviewServer: configure,
    api: { attach },
  };
}

/** Whether a request for an upgrade comes from Vite's own client. */
function isOwn({ headers }: IncomingMessage): boolean {
  return OWN_PROTOCOLS.has(headers["sec-websocket-protocol"]);
}

/** Creates the proxy of a route. If the route has mistakes, returns them instead, one line each. */
function createRoute(given: string, options: CreateProxyOptions): ViteRoute | string[] {
  const mistakes: string[] = [];
  // Slashes at the end make no difference: `/api/` means `/api`.
  const prefix = given.replace(/(?<!\/)\/+$/, "");
  if (!/^\/[^?#*]*$/.test(given)) {
    const hint = given.startsWith("^") ? ", not a regular expression" : "";
    mistakes.push(`bad prefix: use a path such as "/api"${hint}`);
  }
  const created = tryCreate(options);
  if (typeof created !== "string") {
    if (mistakes.length === 0) return { prefix, proxy: created };
    created.destroy();
  } else mistakes.push(...findMistakes(options, created));
  return mistakes.map((mistake) => `fetchway: viteProxy ${quoteInput(given)}: ${mistake}`);
}

/** Finds all wrong options by trying each option alone, because `createProxy` stops at the first wrong one. */
function findMistakes(options: CreateProxyOptions, first: string): string[] {
  const { target, ...others } = options;
  const alone = [
    "target" in options ? { target } : ({} as CreateProxyOptions),
    ...Object.entries(others).map(([name, value]) => ({
      target: "http://127.0.0.1",
      // `redirectTargets` alone is refused without `followRedirects`.
      followRedirects: false,
      [name]: value,
    })),
  ];
  const mistakes = alone.flatMap((one) => {
    if ("ws" in one) return explainWs(one.ws);
    const created = tryCreate(one);
    if (typeof created === "string") return created;
    created.destroy();
    return [];
  });
  // If no option is refused alone, the message `first` is about a combination of options.
  return mistakes.length > 0 ? mistakes : [first];
}

/** Explains what to write instead of `ws`, with which Vite's own proxy forwards WebSockets. */
function explainWs(value: unknown): string {
  const fix = value === false ? "write `upgrades: []`" : "leave it out";
  return `bad option \`ws\`: the plugin forwards WebSockets without it; ${fix}`;
}

/** Creates a proxy, or returns the message with which `createProxy` refuses the options. */
function tryCreate(options: CreateProxyOptions): NodeProxy | string {
  try {
    return createProxy(options);
  } catch (error) {
    return (error as Error).message.replace(/^fetchway: /, "");
  }
}

/** Returns the options of a route. A route that is only a target leaves all other options at their defaults. */
function toOptions(route: ViteRoutes[string]): CreateProxyOptions {
  const isTarget =
    !isRecord(route) ||
    (!("target" in route) && ["url", "fetch", "pick"].some((name) => name in route));
  return isTarget
    ? { target: route as CreateProxyOptions["target"] }
    : (route as unknown as CreateProxyOptions);
}
