import { limitBody, keepBody, checkInterceptor, compose } from "./exchange/interceptors.ts";
import type { Tracing } from "./exchange/observation.ts";
import { followRedirects, compileRedirectPolicy } from "./exchange/redirect.ts";
import type { AttemptOptions } from "./exchange/repeat.ts";
import { convertErrors, sendAttempts, sendThrough } from "./exchange/send.ts";
import type { HeldRequests, holdRequests } from "./exchange/wait.ts";
import { createFetchTransport, STANDARD } from "./fetch/fetchtransport.ts";
import { NameSet, type HeaderList } from "./fields/headers.ts";
import { REQUEST_ASSERTIONS, REQUEST_DROPPED } from "./fields/hopbyhop.ts";
import { badOption, cannotSetHost, isPromise, refusePromise } from "./misuse.ts";
import { checkOptions } from "./options/check.ts";
import type { Mirror } from "./options/mirroroptions.ts";
import { defaults, type ProxyOptions } from "./options/proxyoptions.ts";
import type { ForwardedStyle, RequestRules } from "./request/outgoing.ts";
import { compileTrust } from "./request/trust.ts";
import { compileResponseRewrite, type ResponseRewrite } from "./response/rewrite.ts";
import { type Explain, fillIn } from "./schema/schema.ts";
import { unmapAddress } from "./target/address.ts";
import { createReach, type Reach, withSlash } from "./target/target.ts";
import { ownTransports, type Transport } from "./transport/port.ts";
import type { LogFailure, Send } from "./transport/scope.ts";

/** Rewrites the path and query of a request. */
export type PathRewrite = (path: string, request: () => Request) => string | Promise<string>;

/** The parts of a plan that a runtime provides, other than its usual transport. */
export interface RuntimeParts {
  /** The transport to apps in this process; undefined if the usual transport sends requests to apps as well. */
  inProcess?: Transport;
  /** The channel on which the runtime's tools follow exchanges, if it has one. */
  tracing?: Tracing | undefined;
  /**
   * Explains what to write instead of a name that is not an option; it takes precedence over the core's own
   * explanations.
   */
  explainOption?: Explain;
  /** Reports failures to the developer of an app without `onError` and `onRequestEnd`; undefined to report none. */
  log?: LogFailure;
  /**
   * Creates the `HeldRequests` of a proxy, for the option `wait`. Undefined on runtimes whose HTTP client does not report
   * refused connections: there, a proxy cannot know that an upstream is away.
   */
  holdRequests?: typeof holdRequests;
  /** Whether code of the app has used the body of a response; by default, `bodyUsed` says so. */
  isBodyUsed?: (response: Response) => boolean;
  /** Says how a server of this runtime hands over upgrades, for the error message if a server does not. */
  upgradeHint?: string;
}

/** The options, checked and compiled once, so that an unused option costs nothing per request. */
export interface Plan extends RequestRules {
  readonly rewrite: PathRewrite | undefined;
  readonly rewriteResponse: ResponseRewrite | undefined;
  /** The option that asks for a `Host` other than the target's, if one is set. */
  readonly hostOption: string | undefined;
  readonly timeout: number;
  readonly idleTimeout: number;
  readonly transport: Transport;
  /** Parses a target, and makes sure that the transport can reach it. */
  readonly reach: Reach;
  /** Sends a request through the interceptors and the transport. */
  readonly send: Send;
  readonly attempts: AttemptOptions;
  /** Copies a request to another upstream, and returns the request to send in its place; undefined without `mirror`. */
  readonly mirror: ReturnType<Mirror["copyThrough"]> | undefined;
  /** The requests that wait for their upstreams; undefined without the option `wait`. */
  readonly held: HeldRequests | undefined;
  /** The runtime's own check of whether a body was used. */
  readonly isBodyUsed: RuntimeParts["isBodyUsed"];
  /** The runtime's channel for tools that follow exchanges; undefined where it has none. */
  readonly tracing: Tracing | undefined;
  /** Reports failures to the developer of the app; undefined with `onError`, `onRequestEnd` or `log: false`. */
  readonly log: LogFailure | undefined;
}

/** The maximum number of redirects for `followRedirects: true`. */
const MAX_REDIRECTS = 5;

const ADDED_BY_PROXY = new NameSet(["forwarded", "via"], undefined, ["x-forwarded-"]);

// All plans share these sets: an app that passes a new options object with each call compiles a plan for each request.
const DROPPED = new NameSet(REQUEST_DROPPED, REQUEST_ASSERTIONS);
/**
 * For each style that this proxy may write, the fields that are dropped from the request of a trusted peer. They include the
 * forwarding fields of the other style, so that the two styles cannot contradict each other.
 */
const DROPPED_IF_TRUSTED: Readonly<Record<ForwardedStyle, NameSet>> = {
  "x-forwarded": new NameSet([...REQUEST_DROPPED, "forwarded"]),
  forwarded: new NameSet(REQUEST_DROPPED, undefined, ["x-forwarded-"]),
  none: new NameSet(REQUEST_DROPPED),
};

/**
 * Checks options and compiles them.
 * @param transportFor makes the runtime's own transport for these options
 * @throws TypeError that names the option and the fix
 */
export function compile(
  options: ProxyOptions,
  transportFor: () => Transport,
  {
    inProcess,
    tracing,
    log,
    explainOption,
    isBodyUsed,
    holdRequests,
    upgradeHint,
  }: RuntimeParts = {},
): Plan {
  checkOptions(options, explainOption);
  if (options.transport !== undefined && options.fetch !== undefined) {
    throw badOption("fetch", "leave it out, or leave out `transport`");
  }
  const transport =
    options.transport ??
    (options.fetch
      ? createFetchTransport({ name: "fetch", capabilities: STANDARD, fetch: options.fetch })
      : transportFor());
  const xfwd = options.xfwd ?? defaults.xfwd;
  const forwarded = xfwd === "forwarded" ? "forwarded" : xfwd ? "x-forwarded" : "none";
  const { dropped, droppedIfTrusted, kept, overridden, added } = compileFields(
    options,
    forwarded,
    transport,
  );
  const keepHost = !(options.changeOrigin ?? defaults.changeOrigin);
  const hostOption = keepHost ? "changeOrigin: false" : options.host && "host";
  const { follows, send, attempts, held } = compileSend(
    options,
    transport,
    inProcess,
    holdRequests,
  );
  const plan: Plan = {
    options,
    dropped,
    droppedIfTrusted,
    kept,
    overridden,
    added,
    forwarded,
    by: options.via && /^[\w.-]+$/.test(options.via) ? options.via : undefined,
    trusts: compileTrust(options.trustProxy ?? defaults.trustProxy),
    clientAddress: options.clientAddress && compileAddress(options.clientAddress),
    rewrite: compileRewrite(options),
    rewriteResponse: compileResponseRewrite(options, prefixOf(options.stripPrefix)),
    keepHost,
    hostOption,
    timeout: options.timeout ?? defaults.timeout,
    idleTimeout: options.idleTimeout ?? (transport.handsBodiesThrough ? 0 : defaults.idleTimeout),
    upgrades: (options.upgrades ?? defaults.upgrades).map((each) => each.toLowerCase()),
    upgradeHint,
    follows,
    send,
    attempts,
    isBodyUsed,
    held,
    transport,
    mirror: options.mirror?.copyThrough(transport, sendThrough(transport, inProcess), options),
    reach: createReach(transport, hostOption),
    tracing,
    log: options.onError || options.onRequestEnd || options.log === false ? undefined : log,
  };
  if (hostOption !== undefined && !transport.capabilities.host) {
    throw cannotSetHost(hostOption, transport.name);
  }
  return plan;
}

/** Compiles the options that name fields of the request. */
function compileFields(
  options: ProxyOptions,
  forwarded: ForwardedStyle,
  transport: Transport,
): Pick<Plan, "dropped" | "droppedIfTrusted" | "kept" | "overridden" | "added"> {
  const { headers, filterHeaders, forwardHeaders } = options;
  const unwanted: string[] = filterHeaders === undefined ? [] : [...filterHeaders];
  const added: HeaderList = [];
  if (headers !== undefined) {
    for (const name of Object.keys(headers)) {
      unwanted.push(name);
      const value = headers[name] as string | null;
      if (value !== null) added.push(name, value);
    }
  }
  if (asksForIdentity(options, transport)) {
    unwanted.push("accept-encoding");
    added.push("accept-encoding", "identity");
  }
  const base = DROPPED_IF_TRUSTED[forwarded];
  const isAny = unwanted.length > 0;
  return {
    dropped: isAny ? new NameSet(unwanted, DROPPED) : DROPPED,
    droppedIfTrusted: isAny ? new NameSet(unwanted, base) : base,
    kept: forwardHeaders && subtract(forwardHeaders, unwanted),
    overridden: unwanted.some((name) => ADDED_BY_PROXY.has(name))
      ? new NameSet(unwanted)
      : undefined,
    added,
  };
}

/** Returns the set of those `names` that are not in `others`. */
function subtract(names: readonly string[], others: readonly string[]): NameSet {
  const excluded = new NameSet(others);
  return new NameSet(names.filter((name) => !excluded.has(name)));
}

/**
 * Whether the proxy asks the upstream for a body without content coding. It does so if the transport decodes bodies,
 * because decoding costs time, and loses the length and the strong `ETag`. Options that name `Accept-Encoding` take
 * precedence.
 */
function asksForIdentity(options: ProxyOptions, { capabilities }: Transport): boolean {
  if (capabilities.decodes.length === 0) return false;
  const { headers = {}, forwardHeaders = [], filterHeaders = [] } = options;
  const named = [...Object.keys(headers), ...forwardHeaders, ...filterHeaders];
  return !named.some((name) => name.toLowerCase() === "accept-encoding");
}

/**
 * Composes the steps that the options ask for. Each request passes them in this order on its way to the transport:
 *
 *     interceptors.request → bodyLimit → replay → redirects → wait → retry, also at other upstreams
 *         → interceptors.attempt → transport
 */
function compileSend(
  options: ProxyOptions,
  transport: Transport,
  inProcess: Transport | undefined,
  holdRequests: RuntimeParts["holdRequests"],
): Pick<Plan, "follows" | "send" | "attempts" | "held"> {
  if (options.redirectTargets !== undefined && options.followRedirects === undefined) {
    throw new TypeError(
      "fetchway: `redirectTargets` does nothing without `followRedirects`; set that too",
    );
  }
  const { request = [], attempt = [] } = options.interceptors ?? {};
  const steps = request.map(checkInterceptor);
  if (options.bodyLimit !== undefined) steps.push(limitBody(options.bodyLimit));

  const follow = options.followRedirects ?? defaults.followRedirects;
  const redirects = typeof follow === "number" ? follow : follow ? MAX_REDIRECTS : 0;
  const again = options.retry ? fillIn(defaults.retry, options.retry) : defaults.retry;
  const retries = options.retry !== false && again.attempts > 0;
  const limit = options.replayLimit ?? defaults.replayLimit;
  const retry = retries ? again : { ...again, attempts: 0 };
  const held = compileWait(options, retry, holdRequests);
  // Request bodies are copied only if an option asks for it.
  if (redirects > 0) steps.push(keepBody(limit));
  else if (options.retry && retries) steps.push(keepBody(limit, again.methods));
  if (redirects > 0) {
    const policy = compileRedirectPolicy(options.redirectTargets ?? defaults.redirectTargets);
    steps.push(followRedirects(redirects, policy, Object.keys(options.headers ?? {})));
  }
  const attempts: AttemptOptions = {
    retry,
    waits: held !== undefined,
    attemptTimeout: options.attemptTimeout ?? 0,
    handsBodiesThrough: transport.handsBodiesThrough ?? false,
  };
  if (held !== undefined) steps.push(held.intercept);
  steps.push(sendAttempts(attempts));
  for (const intercept of attempt) steps.push(checkInterceptor(intercept));
  const isForeign = options.transport !== undefined && !ownTransports.has(transport);
  if (isForeign) steps.push(convertErrors);
  const send = compose(steps, sendThrough(transport, inProcess));
  return { follows: redirects > 0, send, attempts, held };
}

function compileWait(
  { wait, onWait }: ProxyOptions,
  retry: AttemptOptions["retry"],
  holdRequests: RuntimeParts["holdRequests"],
): HeldRequests | undefined {
  if (!wait) return undefined;
  if (holdRequests !== undefined) return holdRequests(wait, retry, onWait);
  throw badOption("wait", "leave it out: the client here does not report refused connections");
}

type ClientAddress = NonNullable<ProxyOptions["clientAddress"]>;

/**
 * Makes `clientAddress` return a single address or undefined, because a value that the app took from a header field may
 * be a list of addresses.
 */
function compileAddress(clientAddress: ClientAddress): ClientAddress {
  return (request, context) => {
    const address = refusePromise(clientAddress(request, context), "clientAddress");
    const isOne = typeof address === "string" && /^[\w.:%[\]-]+$/.test(address);
    return isOne ? unmapAddress(address) : undefined;
  };
}

/**
 * Compiles `stripPrefix` and `pathRewrite` into a function that applies them in this order; undefined if neither is
 * set.
 */
export function compileRewrite({
  stripPrefix,
  pathRewrite,
}: {
  readonly stripPrefix?: string | undefined;
  readonly pathRewrite?: ProxyOptions["pathRewrite"] | undefined;
}): PathRewrite | undefined {
  const prefix = prefixOf(stripPrefix);
  const strip = prefix ? (path: string): string => stripped(path, prefix) : undefined;
  if (pathRewrite === undefined) return strip;
  if (typeof pathRewrite === "function") {
    return (path, request) => {
      const given = strip ? strip(path) : path;
      const rewritten = pathRewrite(given, request());
      return isPromise(rewritten)
        ? Promise.resolve(rewritten).then((late) => readPath(late, given))
        : readPath(rewritten, given);
    };
  }
  const rules = Object.entries(pathRewrite).map(
    ([pattern, replacement]) => [new RegExp(pattern), replacement] as const,
  );
  return (path) => {
    let result = strip ? strip(path) : path;
    for (const [pattern, replacement] of rules) result = result.replace(pattern, replacement);
    return withSlash(result);
  };
}

/** Returns the result of `pathRewrite`, or the path that was given to it if it returned nothing. */
function readPath(returned: unknown, given: string): string {
  if (returned === undefined || returned === null) return given;
  if (typeof returned === "string") return withSlash(returned);
  throw badOption("pathRewrite", "return a path, or nothing");
}

/** Returns the prefix without a slash at its end; `""` for none. */
function prefixOf(stripPrefix = ""): string {
  return stripPrefix.endsWith("/") ? stripPrefix.slice(0, -1) : stripPrefix;
}

function stripped(path: string, prefix: string): string {
  if (!path.startsWith(prefix)) return path;
  const rest = path.slice(prefix.length);
  if (rest === "" || rest[0] === "?") return `/${rest}`;
  return rest[0] === "/" ? rest : path;
}
