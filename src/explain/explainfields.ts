/**
 * Explains what becomes of the header fields of a request, from the rules that the core itself applies: the sets of a plan,
 * and the lists of names that are dropped.
 */
import { foldName, type HeaderList, NameSet } from "../fields/headers.ts";
import { HOP_BY_HOP, REQUEST_ASSERTIONS } from "../fields/hopbyhop.ts";
import type { Plan } from "../plan.ts";
import type { ExplainedField } from "../proxy.ts";

/** What became of all fields. */
export interface Explained {
  readonly sent: readonly ExplainedField[];
  readonly dropped: readonly ExplainedField[];
}

/** What is known about a request beside its fields. */
export interface Facts {
  readonly plan: Plan;
  /** Whether `trustProxy` trusts the peer. */
  readonly isTrusted: boolean;
  /** The hooks that may have changed fields, such as "onRequest". */
  readonly hooks: readonly string[];
}

type Reason = Pick<ExplainedField, "reason" | "option"> & {
  /** Whether what is sent contains the client's value. */
  readonly keeps?: boolean;
};

/** Why each field is dropped that `REQUEST_DROPPED` names beside those of `HOP_BY_HOP`. */
export const DROPPED_REASONS: Readonly<Record<string, string>> = {
  "content-length": "the framing follows the body (RFC 9112 §6.3)",
  expect: "meant for this proxy, which expects by itself (RFC 9110 §10.1.1)",
  host: "replaced (RFC 9110 §7.2)",
  proxy: "CGI-like upstreams take it for HTTP_PROXY (CVE-2016-5385); forwardHeaders forwards it",
  "proxy-authorization": "meant for this proxy (RFC 9110 §11.7.2); forwardHeaders forwards it",
};

/** Why a cookie is dropped, or a part of the field: no other rule does so. */
const OWN_COOKIE = "names the upstream of the client, for this proxy (policy sticky)";
const KEPT = "the client's, without the cookie that names its upstream (policy sticky)";

const OF_CONNECTION = new NameSet(HOP_BY_HOP);
const NONE = new NameSet([]);
const FORWARDED = new NameSet(["forwarded"]);
/** The names that this proxy writes, by style. */
const WRITTEN_BY_STYLE = {
  "x-forwarded": new NameSet([
    "x-forwarded-for",
    "x-forwarded-proto",
    "x-forwarded-host",
    "x-forwarded-port",
  ]),
  forwarded: FORWARDED,
  none: NONE,
};
/** The names of the other style, by style. */
const WRITTEN_BY_OTHERS = {
  "x-forwarded": FORWARDED,
  forwarded: new NameSet([], undefined, ["x-forwarded-"]),
  none: NONE,
};

/**
 * Explains the fields of a request.
 * @param received the client's fields
 * @param sent the fields that the upstream would get, without `Host` and the message framing
 */
export function explainFields(received: HeaderList, sent: HeaderList, facts: Facts): Explained {
  const before = joinFields(received);
  const after = joinFields(sent);
  const nominated = readNominated(before);
  const explain = (name: string): Reason =>
    explainSent(name, before.get(name), after.get(name), facts);
  return {
    sent: toRows(sent, explain),
    dropped: toRows(received, (name) =>
      after.has(name) && explain(name).keeps === true
        ? undefined
        : explainDropped(name, nominated, facts),
    ),
  };
}

function toRows(list: HeaderList, explain: (name: string) => Reason | undefined): ExplainedField[] {
  const rows: ExplainedField[] = [];
  for (let i = 0; i < list.length; i += 2) {
    const [name, value] = [list[i] as string, list[i + 1] as string];
    const explained = explain(name.toLowerCase());
    if (explained === undefined) continue;
    const { reason, option } = explained;
    rows.push({ name, value, reason, option });
  }
  return rows;
}

/** Returns the values by name in lower case; some servers show several lines as one. */
function joinFields(list: HeaderList): Map<string, string> {
  const groups = new Map<string, string>();
  for (let i = 0; i < list.length; i += 2) {
    const [name, value] = [(list[i] as string).toLowerCase(), list[i + 1] as string];
    const other = groups.get(name);
    const separator = name === "cookie" ? "; " : ", ";
    groups.set(name, other === undefined ? value : other + separator + value);
  }
  return groups;
}

function readNominated(fields: Map<string, string>): NameSet {
  return new NameSet((fields.get("connection") ?? "").split(",").map((name) => name.trim()));
}

function explainSent(
  name: string,
  before: string | undefined,
  after: string | undefined,
  { plan, isTrusted, hooks }: Facts,
): Reason {
  const { options } = plan;
  const isSame = before === after;
  if (findCovering(Object.keys(options.headers ?? {}), name)) {
    return isSame
      ? { reason: "set; see headers", keeps: true }
      : { reason: "set", option: "headers" };
  }
  if (name === "traceparent" && options.startTrace && !isSame && hooks.length === 0) {
    return { reason: "starts a trace", option: "startTrace" };
  }
  if (plan.added.includes(name) && after === "identity") {
    return { reason: "the client decodes other codings, which would change the body" };
  }
  if (name === "via" && options.via && !isSame) {
    const reason = before === undefined ? "names this proxy" : "the client's, and this proxy";
    return { reason: `${reason} (RFC 9110 §7.6.3)`, option: "via", keeps: true };
  }
  const kept = plan.kept?.has(name) === true;
  const isAllowed = isTrusted || kept;
  // Without this option, the field would have been dropped.
  const allowing = isTrusted && kept ? undefined : isTrusted ? "trustProxy" : "forwardHeaders";
  // What an earlier proxy has told of the scheme, host and port stays.
  const isTold = before !== undefined && isAllowed && /^x-forwarded-(?!for$)/.test(name);
  if (WRITTEN_BY_STYLE[plan.forwarded].has(name) && !isTold && !(isSame && isAllowed)) {
    // The client's part stands before this proxy's own, unless none of it was trusted.
    return before !== undefined && isAllowed && after?.includes(", ") === true
      ? { reason: "what is trusted of it, and the client", option: allowing, keeps: true }
      : { reason: "about the client (RFC 7239 §5)", option: "xfwd" };
  }
  if (!isSame) {
    // Of a trusted peer's fields, `trustProxy` keeps a part.
    if (isTrusted && before !== undefined && REQUEST_ASSERTIONS.has(name)) {
      return { reason: "what trusted proxies have written of it", option: allowing, keeps: true };
    }
    if (name === "cookie" && hooks.length === 0) return { reason: KEPT, keeps: true };
    return hooks.length === 0
      ? { reason: "unknown" }
      : { reason: "set", option: hooks.join(" or ") };
  }
  const isDroppedElse = REQUEST_ASSERTIONS.has(name) || name in DROPPED_REASONS;
  return { reason: "the client's", option: isDroppedElse ? allowing : undefined, keeps: true };
}

function explainDropped(
  name: string,
  nominated: NameSet,
  { plan, isTrusted, hooks }: Facts,
): Reason {
  const { headers = {}, filterHeaders = [], forwardHeaders = [] } = plan.options;
  if (OF_CONNECTION.has(name)) return { reason: "belongs to one connection (RFC 9110 §7.6.1)" };
  if (nominated.has(name)) return { reason: "named in Connection (RFC 9110 §7.6.1)" };
  if (isTrusted && REQUEST_ASSERTIONS.has(name) && foldName(name) !== name) {
    return { reason: "some upstreams read it as the name with - (CVE-2026-30851)" };
  }
  // The rules for all requests come before the options, which would change nothing then.
  if (!findCovering(forwardHeaders, name)) {
    const own = DROPPED_REASONS[name];
    if (own !== undefined) return { reason: own };
    if (!isTrusted && REQUEST_ASSERTIONS.has(name)) {
      return { reason: "a client could forge it (RFC 7239 §8.1); see trustProxy, forwardHeaders" };
    }
    if (isTrusted && WRITTEN_BY_OTHERS[plan.forwarded].has(name)) {
      return { reason: "the other style could contradict it; see xfwd" };
    }
  }
  if (name === "tracestate" && plan.options.startTrace && !findCovering(filterHeaders, name)) {
    return { reason: "has no valid traceparent", option: "startTrace" };
  }
  // Of a trusted peer's field, nothing may be left without these options, too.
  const isPartly = isTrusted && REQUEST_ASSERTIONS.has(name);
  const set = findCovering(Object.keys(headers), name);
  const isFiltered = findCovering(filterHeaders, name) !== undefined;
  if (set !== undefined) {
    const reason = headers[set] === null ? "deleted" : "replaced";
    return isFiltered || isPartly
      ? { reason: `${reason}; see headers, filterHeaders` }
      : { reason, option: "headers" };
  }
  if (isFiltered) {
    return isPartly
      ? { reason: "dropped; see filterHeaders, trustProxy" }
      : { reason: "dropped", option: "filterHeaders" };
  }
  if (plan.added.includes(name)) return { reason: "replaced" };
  if (isPartly) {
    return { reason: "no trusted proxy has written it, or it is malformed; see trustProxy" };
  }
  if (name === "cookie" && hooks.length === 0) return { reason: OWN_COOKIE };
  return hooks.length === 0
    ? { reason: "unknown" }
    : { reason: "deleted", option: hooks.join(" or ") };
}

/** Finds the name in a list that stands for this field, as the core compares names. */
function findCovering(names: readonly string[], name: string): string | undefined {
  return names.find((each) => new NameSet([each]).has(name));
}
