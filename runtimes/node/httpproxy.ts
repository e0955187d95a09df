/**
 * The functions of http-proxy and http-proxy-middleware. Code that is moved to this package may still call them, so
 * each one throws an error that says what to write instead.
 */

/** The methods of http-proxy's proxies, each with what to write instead. */
const METHODS: Readonly<Record<string, string>> = {
  web: "call proxy.nodeHandler(req, res)",
  ws: "call proxy.attach(server) once, or proxy.upgrade(req, socket, head)",
  listen: "listen with createServer(proxy.nodeHandler) of node:http",
  on: "write the options onRequest, onResponse and onError",
  once: "write the options onRequest, onResponse and onError",
};

function refuseName(name: string, fix: string): never {
  throw new TypeError(`fetchway: there is no ${name}(): ${fix}; see docs/coming-from.md`);
}

/**
 * Adds the methods to a proxy. They are not enumerable, so that copies of the proxy and lists of its members leave them
 * out.
 */
export function addFormerMethods<Proxy extends object>(proxy: Proxy): Proxy {
  for (const [name, fix] of Object.entries(METHODS)) {
    Object.defineProperty(proxy, name, { value: () => refuseName(name, fix) });
  }
  return proxy;
}

/**
 * Throws a TypeError: the function of http-proxy and httpxy is called `createProxy` here.
 * @deprecated write `createProxy({ target })`
 * @ignore
 */
export const createProxyServer: (...passed: readonly unknown[]) => never = () =>
  refuseName("createProxyServer", "write createProxy({ target })");

/**
 * Throws a TypeError: the function of http-proxy-middleware is called `createProxy` here.
 * @deprecated write `createProxy({ target }).nodeHandler`
 * @ignore
 */
export const createProxyMiddleware: (...passed: readonly unknown[]) => never = () =>
  refuseName("createProxyMiddleware", "write createProxy({ target }).nodeHandler");
