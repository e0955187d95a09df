/** Finds the mistakes in a config, and names the options as the config file does. */
import {
  cutCredentials,
  quoteInput,
  poolSchema,
  nearest,
  findWrong,
  isRecord,
} from "#fetchway/options";
import { serverSchema } from "../flags/commandoptions.ts";
import { isBalanceable, type RouteOptions, routeSchema } from "../flags/severalupstreams.ts";
import { checkCondition } from "../serve/routecondition.ts";
import { checkPattern, normalizePattern } from "../serve/pattern.ts";
import { findRefusal } from "./problems.ts";
import { type ReadConfig, toSettings } from "./settings.ts";

export interface ConfigFault {
  /** The message: where the mistake is, and the fix, such as `route "/api": timeout: use whole milliseconds`. */
  readonly text: string;
  /** The name of the wrong property, by which `loadconfig.ts` finds the line. */
  readonly key?: string | undefined;
  /** The index of the route with the mistake. */
  readonly route?: number | undefined;
  /** The number of routes in the config. */
  readonly routes?: number | undefined;
}

const TARGET = "http://localhost";

/** The options of a config and of its routes, by the names that other tools use for them. */
const OTHER_NAMES: Readonly<Record<string, string>> = {
  url: "target",
  upstream: "target",
  to: "target",
  proxy: "target",
  backend: "target",
  path: "match",
  prefix: "match",
  from: "match",
  context: "match",
  hostname: "match",
  proxy_pass: "target",
  servers: "target",
  upstreams: "target",
  location: "routes",
  locations: "routes",
  rules: "routes",
  proxy_set_header: "headers",
  requestHeaders: "headers",
  client_max_body_size: "bodyLimit",
  proxy_read_timeout: "timeout",
  proxy_connect_timeout: "connectTimeout",
};

/**
 * What to write instead of the names that people write in `server` by mistake: those of other tools, and options that belong at
 * the top of the config.
 */
const OTHER_SERVER_NAMES: Readonly<Record<string, string>> = {
  listen: 'port: 8080, and host: "0.0.0.0" for all addresses',
  server_name: 'the host in front of the path, as in routes: [{ match: "shop.example/", … }]',
  address: "host",
  hostname: "host",
  ssl_certificate: "cert",
  ssl_certificate_key: "key",
  https: "cert and key",
  ssl: "cert and key",
  tls: "cert and key",
  access_log: "log",
  proxy: 'routes: [{ match: "/api", target: "http://…" }] at the top, beside server',
  routes: "it at the top, beside server",
  target: "it at the top, beside server",
};

export function checkConfig(config: unknown): ConfigFault[] {
  if (typeof config === "function" || config instanceof Promise) {
    return [{ text: "export the config itself, not a function or a promise" }];
  }
  if (!isRecord(config)) return [{ text: 'export an object such as { target: "http://…" }' }];
  const { server, routes, target, balance, ...defaults } = config;
  const faults = [
    ...checkServer(server),
    ...checkProxyOptions(defaults, "", explainTop, {}),
    ...checkTarget(target, "", {}),
    ...checkBalance(balance, target, "", {}),
    ...checkRoutes(routes),
  ];
  return faults.length > 0 ? faults : checkWhole(config);
}

function checkServer(server: unknown): ConfigFault[] {
  if (server === undefined) return [];
  if (!isRecord(server)) {
    return [{ text: "server: use an object such as { port: 8080 }", key: "server" }];
  }
  return Object.entries(server).flatMap(([key, value]) => {
    const [, fix] = findWrong({ [key]: value }, serverSchema) ?? [];
    if (fix === undefined) return [];
    const other = Object.hasOwn(OTHER_SERVER_NAMES, key) ? OTHER_SERVER_NAMES[key] : undefined;
    const text = other === undefined ? offerText(fix) : `write ${other}`;
    return [{ text: `server.${cutCredentials(key)}: ${text}`, key }];
  });
}

function checkRoutes(routes: unknown): ConfigFault[] {
  if (routes === undefined) return [];
  if (!Array.isArray(routes)) {
    return [
      { text: 'routes: use an array of { match: "/api", target: "http://…" }', key: "routes" },
    ];
  }
  const taken = new Map<string, string>();
  return routes.flatMap((route: unknown, index) => {
    const place = { route: index, routes: routes.length };
    if (!isRecord(route)) return [{ text: `routes[${index}]: use an object`, ...place }];
    const { match, when, target, balance, ...options } = route;
    const label = `${nameRoute(match, index)}: `;
    const faults = checkProxyOptions(options, label, explainInRoute, place);
    faults.push(...checkBalance(balance, target, label, place));
    if (target !== undefined) faults.unshift(...checkTarget(target, label, place));
    else faults.unshift({ text: `${label}target: say where to send the requests`, ...place });
    const wrong = when === undefined ? undefined : checkCondition(when);
    if (wrong !== undefined)
      faults.unshift({ text: `${label}when: ${wrong}`, key: "when", ...place });
    // A wrong condition may contain anything, so only a valid one is compared with those of other routes.
    const condition = wrong === undefined ? when : index;
    for (const text of checkMatch(match, condition, label, taken)) {
      faults.unshift({ text, key: "match", ...place });
    }
    return faults;
  });
}

/** Names a route in messages. */
function nameRoute(match: unknown, index: number): string {
  const patterns = (Array.isArray(match) ? match : [match]) as unknown[];
  const isNamed = patterns.length > 0 && patterns.every((each) => typeof each === "string");
  return isNamed ? `route ${quoteInput(patterns.join(", "))}` : `routes[${index}]`;
}

function checkMatch(
  match: unknown,
  condition: unknown,
  label: string,
  taken: Map<string, string>,
): string[] {
  if (match === undefined) return [`${label}match: say which requests, such as "/api"`];
  const patterns = (Array.isArray(match) ? match : [match]) as unknown[];
  if (patterns.length === 0) return [`${label}match: the list is empty`];
  return patterns.flatMap((pattern) => {
    const wrong = checkPattern(pattern);
    if (wrong !== undefined) return [`${label}match: ${wrong}`];
    const name = JSON.stringify([normalizePattern(pattern as string), condition]);
    const other = taken.get(name);
    taken.set(name, label);
    if (other === undefined) return [];
    const where = other === label ? "the same pattern is listed twice" : `${other}has it already`;
    return [`${label}match: ${quoteInput(pattern)}: ${where.replace(/: has/, " has")}`];
  });
}

function checkTarget(target: unknown, label: string, place: Partial<ConfigFault>): ConfigFault[] {
  if (target === undefined) return [];
  const wrong = findRefusal({ target: target as RouteOptions["target"] });
  if (wrong === undefined) return [];
  // For a list of targets, keep the wrong target in the message: `strip` would remove it.
  const named = Array.isArray(target)
    ? wrong.replace(/^fetchway: bad target (?=["\d])/, "")
    : wrong;
  return [{ text: `${label}target: ${strip(named)}`, key: "target", ...place }];
}

/** Checks each option of `balance` alone, beside a valid target, so that only mistakes in `balance` are found. */
function checkBalance(
  given: unknown,
  target: unknown,
  label: string,
  place: Partial<ConfigFault>,
): ConfigFault[] {
  if (given === undefined) return [];
  const fault = (text: string): ConfigFault => ({
    text: `${label}balance${text}`,
    key: "balance",
    ...place,
  });
  if (!isRecord(given)) return [fault(': use an object such as { policy: "first" }')];
  if (target !== undefined && !isBalanceable(target as RouteOptions["target"])) {
    return [fault(": it needs a target that is a URL, or an array of several")];
  }
  return Object.entries(given).flatMap(([key, value]) => {
    const wrong = findRefusal({ target: [TARGET], balance: { [key]: value } });
    return wrong === undefined ? [] : [fault(`.${cutCredentials(key)}: ${strip(wrong)}`)];
  });
}

/** Checks each option of a proxy alone, because `createProxy` stops at the first wrong one. */
function checkProxyOptions(
  options: Record<string, unknown>,
  label: string,
  explain: (name: string) => string | undefined,
  place: Partial<ConfigFault>,
): ConfigFault[] {
  return Object.entries(options).flatMap(([key, value]) => {
    if (key === "pool") return checkPool(value, label, place);
    // Refuse `log` of `createProxy`: the log of the command is set with `server.log`.
    const known = Object.hasOwn(routeSchema, key) && key !== "log";
    const other = known ? undefined : explain(key);
    const wrong = other ?? findRefusal({ target: TARGET, followRedirects: false, [key]: value });
    return wrong === undefined
      ? []
      : [{ text: `${label}${cutCredentials(key)}: ${strip(wrong)}`, key, ...place }];
  });
}

function checkPool(pool: unknown, label: string, place: Partial<ConfigFault>): ConfigFault[] {
  if (!isRecord(pool)) {
    return [
      { text: `${label}pool: use an object such as { maxSockets: 50 }`, key: "pool", ...place },
    ];
  }
  return Object.entries(pool).flatMap(([key, value]) => {
    const wrong = findRefusal({ target: TARGET, pool: { [key]: value } });
    if (wrong === undefined) return [];
    return [{ text: `${label}pool.${cutCredentials(key)}: ${strip(wrong)}`, key, ...place }];
  });
}

/** Checks all options of each route together, because some options are refused only in combination with others. */
function checkWhole(config: object): ConfigFault[] {
  const { routes } = toSettings({ server: {}, proxy: {}, routes: [], target: undefined }, config);
  const own = (config as ReadConfig).routes ?? [];
  return routes.flatMap(({ options }, index) => {
    const wrong = findRefusal(options);
    if (wrong === undefined) return [];
    const route = own[index];
    if (route === undefined) return [{ text: strip(wrong) }];
    const text = `${nameRoute(route.match, index)}: ${strip(wrong)}`;
    return [{ text, route: index, routes: own.length }];
  });
}

function explainTop(name: string): string | undefined {
  if (Object.hasOwn(serverSchema, name)) {
    return `it is an option of the server; write server: { ${name}: … }`;
  }
  if (Object.hasOwn(OTHER_NAMES, name)) return `it is called \`${OTHER_NAMES[name]}\` here`;
  return explainUnknownName(name, ["server", "routes", "target", "balance"]);
}

function explainInRoute(name: string): string | undefined {
  if (name === "location") return "it is called `match` here";
  if (/^(?:methods?|query)$/.test(name)) return `write when: { ${name.replace(/s$/, "")}: … }`;
  if (Object.hasOwn(OTHER_NAMES, name)) return `it is called \`${OTHER_NAMES[name]}\` here`;
  if (Object.hasOwn(serverSchema, name)) {
    return `it is an option of the server, not of a route; write it at the top in server: { ${name}: … }`;
  }
  return explainUnknownName(name, ["match", "when", "target", "balance"]);
}

function explainUnknownName(name: string, others: readonly string[]): string | undefined {
  if (name.startsWith("/")) return `write routes: [{ match: ${quoteInput(name)}, target: … }]`;
  if (Object.hasOwn(poolSchema, name))
    return `it is an option of the pool; write pool: { ${name}: … }`;
  const meant = nearest(name, [...others, ...Object.keys(routeSchema)]);
  // Leave a name that resembles no option to `createProxy`, which refuses it, and explains the options of other libraries.
  return meant === undefined ? undefined : `there is no such option; did you mean \`${meant}\`?`;
}

/**
 * Fits a message of `createProxy` to a config: applies `offerText`, and removes what the label already says (the option or the
 * target) and the list of all valid names.
 */
function strip(message: string): string {
  return offerText(message)
    .replace(/^fetchway: /, "")
    .replace(/^bad (?:option `[^`]*`|target (?:"[^"]*"|\S+)): /, "")
    .replace(/; there are .*$/, "");
}

/** Adds to a message about milliseconds or bytes that a text such as `"10s"` is also valid. */
function offerText(message: string): string {
  return message
    .replace(/use whole milliseconds(?: from 1)?/, '$& or a text such as "10s"')
    .replace("use a number of bytes", '$& or a text such as "10mb"');
}
