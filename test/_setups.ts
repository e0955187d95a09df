/** The proxies under test by name, the same on every host. Imported by hosts: no runtime's API here. */
import type { ProxyOptions, Target } from "#proxy";

export type SetupName =
  | "default"
  | "base"
  | "api"
  | "hosted"
  | "named"
  | "timeouts"
  | "limited"
  | "identity"
  | "trusting"
  | "forwarded"
  | "plain"
  | "rewritten"
  | "hooked"
  | "refused"
  | "following"
  | "sameOrigin"
  | "retrying";

export interface Setup {
  target: Target;
  options: ProxyOptions;
}

export const setups: Record<SetupName, (upstream: string) => Setup> = {
  default: (target) => ({ target, options: {} }),
  base: (upstream) => ({ target: `${upstream}/base?k=v`, options: {} }),
  api: (upstream) => ({ target: `${upstream}/api/orders`, options: {} }),
  hosted: (target) => ({ target, options: { changeOrigin: false } }),
  named: (target) => ({ target, options: { host: "shop.example:8443", via: "edge" } }),
  timeouts: (target) => ({ target, options: { timeout: 300, idleTimeout: 300 } }),
  limited: (target) => ({ target, options: { bodyLimit: 1000 } }),
  identity: (target) => ({
    target,
    options: {
      headers: { "X-User": "alice", "Remote-User": null },
      filterHeaders: ["x-filtered"],
    },
  }),
  trusting: (target) => ({ target, options: { trustProxy: true } }),
  forwarded: (target) => ({ target, options: { xfwd: "forwarded" } }),
  plain: (target) => ({ target, options: { xfwd: false } }),
  rewritten: (upstream) => ({
    target: `${upstream}/v2`,
    options: { stripPrefix: "/api", pathRewrite: { "^/old": "/new" } },
  }),
  hooked: (target) => ({
    target,
    options: {
      onRequest(draft) {
        draft.headers.set("x-hooked", "request");
      },
      onResponse(response) {
        response.headers.set("x-hooked", "response");
      },
      onError: (error) => new Response(`sorry: ${error.code}`, { status: 503 }),
    },
  }),
  following: (target) => ({
    target,
    options: {
      followRedirects: true,
      redirectTargets: "any",
      replayLimit: 1000,
      headers: { "X-Secret": "of the first origin" },
    },
  }),
  sameOrigin: (target) => ({ target, options: { followRedirects: true } }),
  retrying: (target) => ({
    target,
    options: { retry: { attempts: 2, statusCodes: [503], delay: 10 } },
  }),
  refused: () => ({ target: "http://127.0.0.1:1", options: {} }),
};
