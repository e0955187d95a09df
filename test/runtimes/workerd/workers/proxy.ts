/**
 * The Worker under test, with a proxy for each kind of binding that can be a target. It runs in workerd, without
 * Node's APIs.
 */
import {
  createProxy,
  type FetchTarget,
  type Proxy,
  proxyFetch,
} from "../../../../runtimes/workerd.ts";
import type { Interceptor } from "../../../../src/transport/port.ts";
import { runCases } from "../../inprocess/_inprocess.ts";
import { answer } from "./bound.ts";

interface Env {
  SERVICE: FetchTarget;
  ASSETS: FetchTarget;
  ROOMS: { getByName(name: string): FetchTarget };
}

interface Context {
  waitUntil(promise: Promise<unknown>): void;
  exports: { Callable: FetchTarget };
}

export { Callable, Room } from "./bound.ts";

/** An app in the proxy's own isolate. */
const app: FetchTarget = { fetch: answer };

const proxies = new Map<string, Proxy>();

/** Returns the proxy of this name. It is created by the first request, and reused by later ones. */
function proxyOf(name: string, target: FetchTarget, options = {}): Proxy {
  let proxy = proxies.get(name);
  if (proxy === undefined) {
    proxy = createProxy({ target, stripPrefix: `/${name}`, ...options });
    proxies.set(name, proxy);
  }
  return proxy;
}

const answerNotModified: Interceptor = (next) => async (request, scope) => {
  const response = await next(request, scope);
  response.body?.cancel();
  return { ...response, status: 304, statusText: "", body: null };
};

type Way = (request: Request, env: Env, context: Context) => Response | Promise<Response>;

const ways: Record<string, Way> = {
  service: (request, env) => proxyOf("service", env.SERVICE).fetch(request),
  watched: (request, env) =>
    proxyOf("watched", env.SERVICE, { idleTimeout: 20_000 }).fetch(request),
  impatient: (request, env) =>
    proxyOf("impatient", env.SERVICE, { idleTimeout: 1000 }).fetch(request),
  app: (request) => proxyOf("app", app).fetch(request),
  appWatched: (request) => proxyOf("appWatched", app, { idleTimeout: 20_000 }).fetch(request),
  unmodified: (request) =>
    proxyOf("unmodified", app, { interceptors: { request: [answerNotModified] } }).fetch(request),
  waiting(request, _, context) {
    // Without `waitUntil`, workerd ends the Worker and the app in it when the client disconnects.
    context.waitUntil(new Promise((resolve) => setTimeout(resolve, 5_000)));
    return proxyOf("waiting", app).fetch(request);
  },
  room(request, env) {
    const [, , name = "", rest = ""] = new URL(request.url).pathname.split("/", 4);
    return proxyFetch(request, env.ROOMS.getByName(name), { pathRewrite: () => `/${rest}` });
  },
  callable: (request, _, { exports }) =>
    proxyFetch(request, exports.Callable, { stripPrefix: "/callable" }),
  named: (request, { SERVICE }) =>
    proxyFetch(
      request,
      { url: "https://shop.example/base", fetch: (own) => SERVICE.fetch(own) },
      { stripPrefix: "/named" },
    ),
  async unbound(request, { SERVICE }) {
    const fetch = Reflect.get(SERVICE, "fetch");
    return proxyFetch(request, { url: "https://shop.example", fetch }).catch(
      (error: unknown) => new Response(String(error)),
    );
  },
  swapped: (request, { SERVICE }) =>
    proxyFetch(SERVICE as unknown as Request, request as unknown as FetchTarget).catch(
      (error: unknown) => new Response(String(error)),
    ),
  assetsFirst: (request, { ASSETS, SERVICE }) =>
    proxyFetch(request, ASSETS, {
      stripPrefix: "/assetsFirst",
      onResponse: ({ status }) =>
        status === 404 ? proxyFetch(request, SERVICE, { stripPrefix: "/assetsFirst" }) : undefined,
    }),
  serviceFirst: (request, { ASSETS, SERVICE }) =>
    proxyFetch(request, SERVICE, {
      stripPrefix: "/serviceFirst",
      onResponse: ({ status }) =>
        status === 404 ? proxyFetch(request, ASSETS, { stripPrefix: "/serviceFirst" }) : undefined,
    }),
  follow: (request, { SERVICE }) =>
    proxyFetch(request, SERVICE, { stripPrefix: "/follow", followRedirects: true }),
  cases: async () => Response.json(await runCases(createProxy)),
};

const worker: { fetch: Way } = {
  fetch: (request, env, context) =>
    (ways[new URL(request.url).pathname.split("/", 2)[1] ?? ""] as Way)(request, env, context),
};
export default worker;
