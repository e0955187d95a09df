/**
 * A handler for the route rules of h3 and Nitro: `fetchway/rules`. With it, Fetchway forwards the requests that match a
 * rule `proxy`, instead of h3's own `proxyRequest`.
 * @module
 */
import { proxyFetch, type ProxyOptions } from "#fetchway";
import { fillIn, quoteInput } from "#fetchway/options";

export type { ProxyOptions } from "#fetchway";

/**
 * The value of a rule `proxy`: the target, and options that take precedence over those of the handler. Two options are refused
 * where they would have no effect: `stripPrefix`, where the handler removes the path of the rule, and `pathRewrite`, where each
 * request goes to one URL.
 */
export interface ProxyRule extends ProxyOptions {
  /**
   * The target. If it ends with `/**`, the part of the request's path below the rule's own `/**`, and the query, are appended
   * to the target's path. Otherwise, each request goes to this one URL, and the request's query is added to the URL's own.
   *
   * `{{NAME}}` is replaced by the environment variable `NAME`. The variable is read at the rule's first request, because Nitro
   * writes rules into the app when it is built.
   * @example "http://127.0.0.1:4000/v1/**", "{{API_URL}}/v1/**"
   */
  to: string;
  /** The part of the path in front of the rule's `/**`; h3 sets it. */
  base?: string;
}

/** The part of h3's event that the handler uses. */
export interface RuleEvent {
  readonly req: Request;
}

/** A handler for rules. The type is not imported from h3, so that the package works with several versions of h3. */
export interface RuleHandler {
  /** The position of this handler among the handlers of a request: the same as that of h3's own handler for `proxy` rules. */
  readonly order: number;
  readonly handler: (matched: {
    readonly options: ProxyRule;
    /** The pattern of the rule, which becomes the option `route`. */
    readonly route?: string;
  }) => (event: RuleEvent) => Promise<Response> | undefined;
}

type SendEvent = (event: RuleEvent) => Promise<Response>;

/**
 * Creates a handler for the rules `proxy` of h3's `routeRules`.
 *
 * All rules share the connections of `proxyFetch`. If the target ends with `/**`, its redirects are rewritten to stay below the
 * path of the rule. On Node, WebSockets do not pass through the rules of h3; attach a proxy to the server for them.
 * @param options options of a proxy, for all rules
 * @example
 * ```ts
 * import { createRuleHandler } from "fetchway/rules";
 * import { H3, serve } from "h3";
 * import { routeRules } from "h3/rules";
 *
 * const rules = { "/api/**": { proxy: "http://127.0.0.1:4000/v1/**" } };
 * const handlers = { proxy: createRuleHandler({ trustProxy: ["loopback"] }) };
 * serve(new H3().use(routeRules(rules, { handlers })));
 * ```
 */
export function createRuleHandler(options: ProxyOptions = {}): RuleHandler {
  // h3 asks for a handler for each path that its cache lacks, and passes the same object for the same rule. Compile each
  // rule once.
  const compiled = new WeakMap<ProxyRule, SendEvent>();
  return {
    order: 2,
    handler({ options: rule, route }) {
      let send = compiled.get(rule);
      if (send === undefined) {
        send = compileRule(rule, fillIn(route === undefined ? {} : { route }, options));
        compiled.set(rule, send);
      }
      return send;
    },
  };
}

/**
 * The handler without options, for rules that are compiled before the app runs, as in Nitro: let `h3/rules/proxy` be an
 * alias of `fetchway/rules`, or pass `runtimeRules: { proxy: "fetchway/rules" }` to the compiler of h3.
 */
export const proxy: RuleHandler = createRuleHandler();

/** Returns the function that forwards the requests of a rule. */
function compileRule(rule: ProxyRule, shared: ProxyOptions): SendEvent {
  const { to: given, base, ...own } = rule;
  const options = fillIn<ProxyOptions>(shared, own);
  const to = fillVariables(given);
  if (!/^https?:/.test(to) || to.slice(0, -3).includes("**")) {
    const fix = 'use a URL such as "http://127.0.0.1:4000/v1/**", with `/**` only at its end';
    throw badRule(to, fix);
  }
  if (!to.endsWith("/**")) return compileFixed(to, options);
  const target = to.slice(0, -3);
  const depth = base?.match(/\//g)?.length ?? 0;
  if (depth > 0 && options.stripPrefix !== undefined) {
    throw badRule(to, "remove `stripPrefix`: the path of the rule is removed without it");
  }
  // `proxyFetch` compiles each options object once, so keep the object as long as the prefix stays the same. The prefix
  // changes only where the rule has parameters, or where a client has written the same path with other percent-encoding.
  let last: ProxyOptions = { ...options };
  return async ({ req }) => {
    const prefix = cutSegments(req.url, depth);
    if (prefix === undefined) return new Response(null, { status: 400 });
    if (prefix !== "" && last.stripPrefix !== prefix) last = { ...options, stripPrefix: prefix };
    return proxyFetch(req, target, last);
  };
}

function badRule(to: string, fix: string): TypeError {
  return new TypeError(`fetchway: bad rule ${quoteInput(to)}: ${fix}`);
}

/**
 * Replaces the variables of the environment in a URL. If a value ends with a slash and a slash follows the variable, the URL
 * gets only one slash there.
 */
function fillVariables(to: string): string {
  const { process } = globalThis as { process?: { env: Record<string, string | undefined> } };
  return to.replace(/\{\{\s*(\w+)\s*\}\}(\/?)/g, (_, name: string, slash: string) => {
    const value = process?.env[name];
    if (value) return value.endsWith(slash) ? value : value + slash;
    throw badRule(to, `the environment has no ${name}`);
  });
}

/** Returns the function that forwards all requests of a rule to the same URL. */
function compileFixed(to: string, options: ProxyOptions): SendEvent {
  if (options.pathRewrite !== undefined) {
    throw badRule(to, "remove `pathRewrite`, or let the target end with `/**`");
  }
  const { origin, pathname, search, username, password, hash } = new URL(to);
  if (username + password !== "") {
    throw badRule(to, "remove the credentials, and set `headers: { authorization }` instead");
  }
  if (hash !== "") throw badRule(to, "remove the fragment, which is never sent");
  const fixed: ProxyOptions = {
    ...options,
    pathRewrite(path) {
      const query = path.includes("?") ? path.slice(path.indexOf("?") + 1) : "";
      if (query === "") return pathname + search;
      return `${pathname}${search}${search === "" ? "?" : "&"}${query}`;
    },
  };
  return ({ req }) => proxyFetch(req, origin, fixed);
}

/**
 * Returns the first `depth` segments of a URL's path, as the client has written them; undefined if the path has fewer segments,
 * or if one of the first `depth` is empty. The caller passes `req.url`, because h3's event may spell the URL differently.
 */
function cutSegments(url: string, depth: number): string | undefined {
  const [path = ""] = url.slice(url.indexOf("/", url.indexOf("//") + 2)).split("?", 1);
  const segments = path.split("/", depth + 1).slice(1);
  if (segments.length < depth || segments.includes("")) return undefined;
  return segments.map((segment) => `/${segment}`).join("");
}
