/**
 * Explains what becomes of the header fields of a request, from the rules that the core itself applies: the sets of a plan,
 * and the lists of names that are dropped.
 */
import { HOP_BY_HOP, NameSet, REQUEST_ASSERTIONS } from "../../src/fields/headers.ts";
import type { Plan } from "../../src/options/plan.ts";
import type { HeaderList } from "../../src/transport.ts";

/** What became of a field of the client, or where a field of the upstream request comes from. */
export interface FieldRow {
  readonly name: string;
  readonly value: string;
  /** The reason, such as "the client's" or "belongs to one connection (RFC 9110 §7.6.1)". */
  readonly reason: string;
  /** The option that decides, if it is one; without it, the outcome would be another. */
  readonly option?: string | undefined;
}

/** What became of all fields. */
export interface Explained {
  readonly sent: readonly FieldRow[];
  readonly dropped: readonly FieldRow[];
}

/** What is known about a request beside its fields. */
export interface Facts {
  readonly plan: Plan;
  /** Whether `trustProxy` trusts the peer. */
  readonly isTrusted: boolean;
  /** The hooks that may have changed fields, such as "onRequest". */
  readonly hooks: readonly string[];
}

type Reason = Pick<FieldRow, "reason" | "option">;

/** Why each field is dropped that `REQUEST_DROPPED` names beside those of `HOP_BY_HOP`. */
export const DROPPED_REASONS: Readonly<Record<string, string>> = {
  "content-length": "the framing follows the body (RFC 9112 §6.3)",
  expect: "meant for this proxy, which expects by itself (RFC 9110 §10.1.1)",
  host: "replaced (RFC 9110 §7.2)",
  "proxy-authorization": "meant for this proxy (RFC 9110 §11.7.2); forwardHeaders forwards it",
};

const OF_CONNECTION = new NameSet(HOP_BY_HOP);
const ASSERTIONS = new NameSet(REQUEST_ASSERTIONS);
const BY_STYLE = {
  "x-forwarded": new NameSet(["x-forwarded-"]),
  forwarded: new NameSet(["forwarded"]),
  none: new NameSet([]),
};
const WRITTEN_BY_STYLE = {
  "x-forwarded": new NameSet([
    "x-forwarded-for",
    "x-forwarded-proto",
    "x-forwarded-host",
    "x-forwarded-port",
  ]),
  forwarded: BY_STYLE.forwarded,
  none: BY_STYLE.none,
};

/**
 * Explains the fields of a request.
 * @param received the client's fields
 * @param sent the fields that the upstream would get, without `Host` and the message framing
 */
export function explainFields(received: HeaderList, sent: HeaderList, facts: Facts): Explained {
  const before = groupFields(received);
  const after = groupFields(sent);
  const nominated = readNominated(before);
  return {
    sent: toRows(sent, (name) => explainSent(name, before.get(name), after.get(name), facts)),
    dropped: toRows(received, (name) =>
      after.has(name) ? undefined : explainDropped(name, nominated, facts),
    ),
  };
}

function toRows(list: HeaderList, explain: (name: string) => Reason | undefined): FieldRow[] {
  const rows: FieldRow[] = [];
  for (let i = 0; i < list.length; i += 2) {
    const [name, value] = [list[i] as string, list[i + 1] as string];
    const reason = explain(name.toLowerCase());
    if (reason !== undefined) rows.push({ name, value, ...reason });
  }
  return rows;
}

/** Returns the values by name in lower case; some servers show several lines as one. */
function groupFields(list: HeaderList): Map<string, string> {
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
  if (findName(Object.keys(options.headers ?? {}), name) && (!isSame || before === undefined)) {
    return { reason: "set", option: "headers" };
  }
  if (plan.added.includes(name) && after === "identity") {
    return { reason: "the client decodes other codings, which would change the body" };
  }
  if (name === "via" && options.via && !isSame) {
    const reason = before === undefined ? "names this proxy" : "the client's, and this proxy";
    return { reason: `${reason} (RFC 9110 §7.6.3)`, option: "via" };
  }
  const isAllowed = isTrusted || plan.kept?.has(name) === true;
  if (WRITTEN_BY_STYLE[plan.forwarded].has(name) && !(isSame && isAllowed)) {
    const isExtended = before !== undefined && isAllowed;
    return isExtended
      ? {
          reason: "what is trusted of it, and the client's address",
          option: findAllowing(isTrusted),
        }
      : { reason: "about the client (RFC 7239 §5)", option: "xfwd" };
  }
  if (!isSame) {
    // Of a trusted peer's fields, `trustProxy` keeps a part.
    if (isTrusted && before !== undefined && ASSERTIONS.has(name)) {
      return { reason: "what trusted proxies have written of it", option: "trustProxy" };
    }
    return { reason: hooks.length === 0 ? "unknown" : "set", option: hooks.join(" or ") };
  }
  if (isAllowed && (ASSERTIONS.has(name) || OF_CONNECTION.has(name) || name in DROPPED_REASONS)) {
    const option = plan.kept?.has(name) === true ? "forwardHeaders" : "trustProxy";
    return { reason: "the client's", option };
  }
  return { reason: "the client's" };
}

function findAllowing(isTrusted: boolean): string {
  return isTrusted ? "trustProxy" : "forwardHeaders";
}

function explainDropped(
  name: string,
  nominated: NameSet,
  { plan, isTrusted, hooks }: Facts,
): Reason {
  const { options } = plan;
  if (OF_CONNECTION.has(name)) return { reason: "belongs to one connection (RFC 9110 §7.6.1)" };
  const kept = plan.kept?.has(name) === true;
  const own = DROPPED_REASONS[name];
  if (own !== undefined && !kept) return { reason: own };
  const set = findName(Object.keys(options.headers ?? {}), name);
  if (set !== undefined) {
    const isSet = options.headers?.[set] !== null;
    return { reason: isSet ? "replaced" : "deleted", option: "headers" };
  }
  if (findName(options.filterHeaders ?? [], name))
    return { reason: "dropped", option: "filterHeaders" };
  if (!kept && !isTrusted && plan.dropped.has(name)) {
    return { reason: "a client could forge it (RFC 7239 §8.1); see trustProxy and forwardHeaders" };
  }
  if (!kept && isTrusted && plan.droppedIfTrusted.has(name)) {
    return { reason: "the other style could contradict it", option: "xfwd" };
  }
  if (nominated.has(name)) return { reason: "named in Connection (RFC 9110 §7.6.1)" };
  if (isTrusted && ASSERTIONS.has(name)) {
    return { reason: "no trusted proxy has written it, or it is malformed", option: "trustProxy" };
  }
  return { reason: hooks.length === 0 ? "unknown" : "deleted", option: hooks.join(" or ") };
}

/** Finds the name in a list that stands for this field, as the core compares names. */
function findName(names: readonly string[], name: string): string | undefined {
  return names.find((each) => new NameSet([each]).has(name));
}
