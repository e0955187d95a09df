/**
 * The configurations of the proxies under test, by name. Hosts on every runtime import this file, so it uses only web
 * APIs.
 */
import type { ProxyOptions, Target } from "#fetchway";
import { transformText } from "../../src/bodies.ts";
import { mirrorTo } from "../../src/exchange/mirror.ts";
import { awaitFirstByte, sendHeartbeats } from "../../src/streams.ts";
import { balance } from "../../src/upstreams/balance.ts";
import { app } from "./_app.ts";

export type SetupName =
  | "default"
  | "base"
  | "api"
  | "hosted"
  | "named"
  | "timeouts"
  | "stalling"
  | "lasting"
  | "limited"
  | "identity"
  | "tracing"
  | "trusting"
  | "forwarded"
  | "ranged"
  | "rangedForwarded"
  | "rangedElsewhere"
  | "traced"
  | "plain"
  | "rewritten"
  | "stripped"
  | "hooked"
  | "guarded"
  | "observed"
  | "timed"
  | "mirrored"
  | "streaming"
  | "following"
  | "sameOrigin"
  | "retrying"
  | "moved"
  | "mapped"
  | "unmoved"
  | "throwing"
  | "unhandled"
  | "distrusting"
  | "routed"
  | "witnessed"
  | "refused"
  | "changed"
  | "awaiting"
  | "inProcess";

export interface Setup {
  target: Target;
  options: ProxyOptions;
}

/**
 * Creates the setup of this name.
 * @param more further options as JSON, for runs that add some
 */
export function createSetup(name: SetupName, upstream: string, more?: string): Setup {
  const { target, options } = setups[name](upstream);
  const others = JSON.parse(more || "{}") as ProxyOptions;
  // Turn `log` off, because text on stderr counts as a fault of the host.
  return { target, options: { log: false, ...options, ...others } };
}

/**
 * Makes a hook fail as the path says: it throws for `/<hook>/throws`, and returns a rejected promise for
 * `/<hook>/rejects`.
 */
function failIn(hook: string, url: string): undefined {
  if (url.includes(`/${hook}/throws`)) throw new Error(secret);
  // If the hook may be async, the proxy awaits this promise. The cast is for the hooks whose types allow no promise.
  if (url.includes(`/${hook}/rejects`)) return Promise.reject(new Error(secret)) as never;
  return undefined;
}

/** Creates a byte stream that is closed after a pause, when its reader is already waiting for the next chunk. */
function toByteStream(text: string): ReadableStream<Uint8Array> {
  return new ReadableStream({
    type: "bytes",
    async start(controller) {
      controller.enqueue(new TextEncoder().encode(text));
      await new Promise((resolve) => setTimeout(resolve, 50));
      // A pending BYOB read also needs `byobRequest.respond(0)`, but most user code does not know that.
      controller.close();
    },
  });
}

/** The message of a hook's exception. The operator may read it, but it must not reach a client. */
export const secret = "10.0.0.1 is secret";

/** The interim responses that `onInformational` of the setup `hooked` has received. */
const informed = new WeakMap<Request, string[]>();

/** The events that `onRequestEnd` of the setup `observed` has received, oldest first. */
const ended: object[] = [];

/** The parts of `node:diagnostics_channel` and `node:async_hooks` with which the setup `observed` subscribes. */
interface Channel {
  subscribe(listener: (message: Trace) => void): void;
  unsubscribe(listener: (message: Trace) => void): void;
}
interface Trace {
  method: string;
  path: string;
  authority: string;
  result?: { status: number; upstream?: string };
  error?: { code?: string };
}
type Stage = "start" | "end" | "asyncStart" | "asyncEnd" | "error";
interface Modules {
  "node:diagnostics_channel": {
    tracingChannel(name: string): Record<Stage, Channel> & {
      start: {
        bindStore(store: Store, toValue: (message: Trace) => string): void;
        unbindStore(store: Store): void;
      };
    };
  };
  "node:async_hooks": { AsyncLocalStorage: new () => Store };
}
interface Store {
  getStore(): string | undefined;
}

/**
 * The events that the channel `fetchway.request` has published about paths that begin with `/traced/`, while it is
 * subscribed to.
 */
const traced = {
  seen: [] as string[],
  store: undefined as Store | undefined,
  stop: (): void => {},
  /** Subscribes; returns whether the runtime has this channel. */
  start(): boolean {
    const { process } = globalThis as unknown as {
      process?: { getBuiltinModule?<Name extends keyof Modules>(name: Name): Modules[Name] };
    };
    const diagnostics = process?.getBuiltinModule?.("node:diagnostics_channel");
    const hooks = process?.getBuiltinModule?.("node:async_hooks");
    if (diagnostics?.tracingChannel === undefined || hooks === undefined) return false;
    const channel = diagnostics.tracingChannel("fetchway.request");
    const store = (traced.store ??= new hooks.AsyncLocalStorage());
    channel.start.bindStore(store, ({ path }) => path);
    const stages = (["start", "end", "asyncStart", "asyncEnd", "error"] as const).map((stage) => {
      const listener = ({ method, path, authority, result, error }: Trace): void => {
        const end = result === undefined ? "" : ` ${result.status} ${error?.code ?? "complete"}`;
        if (path.startsWith("/traced/")) {
          traced.seen.push(`${stage} ${method} ${authority}${path}${end}`);
        }
      };
      channel[stage].subscribe(listener);
      return () => channel[stage].unsubscribe(listener);
    });
    traced.stop = () => {
      for (const unsubscribe of stages.splice(0)) unsubscribe();
      channel.start.unbindStore(store);
    };
    return true;
  },
};

const failing = (upstream: string): Setup => ({
  target: (request) => failIn("target", request.url) ?? upstream,
  options: {
    clientAddress: ({ url }) => failIn("clientAddress", url) ?? "192.0.2.1",
    pathRewrite: (path) => failIn("pathRewrite", path) ?? path,
    followRedirects: true,
    redirectTargets: ({ href }) => failIn("redirectTargets", href) ?? true,
    onRequest: (_, { url }) => failIn("onRequest", url),
    onResponse: (response, { url }) =>
      url.includes("/onResponse/reads") ? readBody(response) : failIn("onResponse", url),
  },
});

/** Reads the body of the response that the client should get, and returns nothing. */
async function readBody(response: Response): Promise<void> {
  await response.text();
}

export const setups: Record<SetupName, (upstream: string) => Setup> = {
  default: (target) => ({ target, options: {} }),
  base: (upstream) => ({ target: `${upstream}/base?k=v`, options: {} }),
  api: (upstream) => ({ target: `${upstream}/api/orders`, options: {} }),
  hosted: (target) => ({ target, options: { changeOrigin: false } }),
  named: (target) => ({ target, options: { host: "shop.example:8443", via: "edge" } }),
  /** For exchanges that time out because their response headers never arrive completely. */
  timeouts: (target) => ({ target, options: { timeout: 500, idleTimeout: 500 } }),
  /** For responses that stall after their head, which may arrive late on a busy machine. */
  stalling: (target) => ({ target, options: { idleTimeout: 500 } }),
  /** For exchanges that must not time out although they last longer, also on a busy machine. */
  lasting: (target) => ({ target, options: { timeout: 2000, idleTimeout: 2000 } }),
  limited: (target) => ({ target, options: { bodyLimit: 1000 } }),
  identity: (target) => ({
    target,
    options: {
      headers: { "X-User": "alice", "Remote-User": null },
      filterHeaders: ["x-filtered"],
    },
  }),
  tracing: (upstream) => ({
    target: `${upstream}/base?key=secret`,
    options: { trace: true, headers: { "X-User": "secret", "X-Plain": "operator" } },
  }),
  trusting: (target) => ({ target, options: { trustProxy: true } }),
  forwarded: (target) => ({ target, options: { xfwd: "forwarded" } }),
  ranged: (target) => ({
    target,
    options: { trustProxy: ["127.0.0.0/8", "10.0.0.0/8", "fd00::/8"] },
  }),
  rangedForwarded: (target) => ({
    target,
    options: { trustProxy: ["loopback", "10.0.0.0/8", "fd00::/8"], xfwd: "forwarded" },
  }),
  rangedElsewhere: (target) => ({ target, options: { trustProxy: ["10.0.0.0/8"] } }),
  traced: (target) => ({ target, options: { via: "edge", xfwd: "forwarded" } }),
  plain: (target) => ({ target, options: { xfwd: false } }),
  rewritten: (upstream) => ({
    target: `${upstream}/v2`,
    options: { stripPrefix: "/api", pathRewrite: { "^/old": "/new" } },
  }),
  stripped: (target) => ({ target, options: { stripPrefix: "/pub" } }),
  /** `onRequest` as middleware: adds fields with the path and the number of parameters, names a user, and refuses a path. */
  guarded: (target) => ({
    target,
    options: {
      filterHeaders: ["x-user"],
      onRequest({ headers }, { url }) {
        const { pathname, searchParams } = new URL(url);
        headers.set("x-path", pathname);
        headers.set("x-count", String(searchParams.size));
        if (pathname === "/alice") headers.set("x-user", "alice");
        return pathname === "/forbidden" ? new Response("forbidden", { status: 403 }) : undefined;
      },
    },
  }),
  hooked: (target) => ({
    target,
    options: {
      onRequest(draft) {
        draft.headers.set("x-hooked", "request");
        // A request for `/as/GET` is sent with the method GET, whatever its own method is.
        if (draft.path.startsWith("/as/")) draft.method = draft.path.slice("/as/".length);
      },
      onInformational(status, headers, asked) {
        const fields = headers.has("link") ? ` ${headers.get("link")} ${headers.get("x-b")}` : "";
        const seen = informed.get(asked) ?? [];
        seen.push(`${status}${fields}`);
        informed.set(asked, seen);
      },
      onResponse(response, asked) {
        response.headers.set("x-hooked", "response");
        const seen = informed.get(asked);
        if (seen !== undefined) response.headers.set("x-informed", seen.join("; "));
      },
      onError: (error) => new Response(`sorry: ${error.code}`, { status: 503 }),
    },
  }),
  observed: (upstream) => ({
    target: ({ url }) => (url.endsWith("/refused") ? "http://127.0.0.1:1" : upstream),
    options: {
      route: "/observed/:id",
      onRequest({ path }) {
        // Returns the events so far, and forgets them.
        if (path === "/seen") return Response.json(ended.splice(0));
        if (path === "/trace/start") return Response.json(traced.start());
        if (path === "/trace/seen") return Response.json(traced.seen);
        if (path === "/trace/stop") {
          traced.stop();
          return Response.json(traced.seen.splice(0));
        }
        if (path.startsWith("/traced/")) traced.seen.push(`onRequest ${traced.store?.getStore()}`);
        return undefined;
      },
      onRequestEnd({ request, error, ...event }) {
        const code = (error as { code?: string } | undefined)?.code;
        if (/^\/(?:seen|trace)/.test(event.path)) return;
        ended.push({ ...event, error: code, url: request.url });
      },
    },
  }),
  timed: (target) => ({ target, options: { serverTiming: true, startTrace: true } }),
  /** The upstream is its own mirror: it gets each request twice. */
  mirrored: (target) => ({ target, options: { mirror: mirrorTo(target) } }),
  streaming: (target) => ({
    target,
    options: {
      onRequest(draft) {
        draft.body = toByteStream("streamed by a hook");
      },
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
  moved: (upstream) => ({
    target: `${upstream}/v2?key=k`,
    options: {
      stripPrefix: "/api",
      cookieDomainRewrite: { "up.test": "shop.test", "*": "" },
      cookiePathRewrite: { "/v2": "/api" },
    },
  }),
  mapped: (upstream) => ({
    target: upstream,
    options: {
      cookieDomainRewrite: "",
      cookiePathRewrite: "/",
      locationRewrite: {
        [`${upstream}/`]: "https://shop.test/",
        [`${upstream}/old/`]: "/",
        "/old/": "/new/",
      },
    },
  }),
  unmoved: (upstream) => ({ target: `${upstream}/v2`, options: { locationRewrite: false } }),
  throwing(upstream) {
    const { target, options } = failing(upstream);
    const onError: ProxyOptions["onError"] = ({ status, code }, { url }) =>
      url.includes("/onError/silent")
        ? undefined
        : (failIn("onError", url) ?? new Response(`handled: ${code}`, { status }));
    return { target, options: { ...options, onError } };
  },
  unhandled: failing,
  distrusting: (target) => ({
    target,
    options: { trustProxy: () => failIn("trustProxy", "/trustProxy/throws") ?? true },
  }),
  routed: (upstream) => ({
    /** A router that adds the path that it sees to the target's query. It serves only the name shop.test. */
    target({ url }) {
      const { host, pathname } = new URL(url);
      if (host !== "shop.test") return "http://127.0.0.1:1";
      return `${upstream}?saw=${encodeURIComponent(pathname)}`;
    },
    options: {},
  }),
  witnessed: (upstream) => ({
    /** A router that adds the authority that it sees to the target's query. */
    target: ({ url }) =>
      `${upstream}?saw=${encodeURIComponent(/\/\/([^/?#]*)/.exec(url)?.[1] ?? "")}`,
    options: { changeOrigin: false },
  }),
  changed: (target) => {
    const upper = transformText((text) => text.toUpperCase(), {
      maxBytes: 50_000,
      tooLarge: "pass",
      unreadable: "pass",
    });
    return { target, options: { interceptors: { request: [upper] } } };
  },
  /** Two upstreams, which are one server under two names. */
  awaiting: (target) => ({
    target: balance([target, target.replace("127.0.0.1", "localhost")], {
      policy: "first",
      outliers: false,
    }),
    options: {
      retry: { methods: ["GET", "POST"], statusCodes: [503] },
      interceptors: {
        request: [sendHeartbeats({ interval: 30 })],
        attempt: [
          awaitFirstByte({
            firstByteTimeout: 1500,
            statusOf: ({ type }) => (type === "error" ? 503 : 200),
          }),
        ],
      },
    },
  }),
  inProcess: () => ({ target: app, options: {} }),
  refused: () => ({ target: "http://127.0.0.1:1", options: {} }),
};
