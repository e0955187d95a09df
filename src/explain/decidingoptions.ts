/**
 * Explains what the proxy does with the header fields of a request. To find the option that decides about a field, this
 * module leaves out one option at a time, and makes the fields again with the functions that forward a request.
 */
import { foldName, type HeaderList, NameSet } from "../fields/headers.ts";
import { HOP_BY_HOP, REQUEST_ASSERTIONS } from "../fields/hopbyhop.ts";
import { defaults, type ProxyOptions } from "../options/proxyoptions.ts";
import type { ExplainedField, Explanation } from "../proxy.ts";

/**
 * The options that decide about fields. If several of them decide to drop a field, the first one in this list is named.
 * `startTrace` is not in the list, because it makes another value each time.
 */
const DECIDING = [
  "headers",
  "filterHeaders",
  "forwardHeaders",
  "trustProxy",
  "via",
  "xfwd",
] as const;
type Deciding = (typeof DECIDING)[number];

/** Makes the fields for the upstream with other values of these options, and without a new trace. */
export type MakeFields = (changed: Partial<Pick<ProxyOptions, Deciding>>) => HeaderList;

/** The facts about a request that its fields do not show. */
export interface Facts {
  readonly options: ProxyOptions;
  /** Whether `trustProxy` trusts the peer. */
  readonly isTrusted: boolean;
  /** The hooks that may have changed fields, such as "onRequest". */
  readonly hooks: readonly string[];
  /** The fields before hooks changed them, with the trace of `startTrace`, and without the cookie of the policy `sticky`. */
  readonly unhooked: HeaderList;
}

type Reason = Pick<ExplainedField, "reason" | "option"> & {
  /** Whether the field that is sent contains the client's value. */
  readonly keeps?: boolean;
};

/** Why the proxy drops the fields that are in `REQUEST_DROPPED`, but not in `HOP_BY_HOP`. */
export const DROPPED_REASONS: Readonly<Record<string, string>> = {
  "content-length": "the framing follows the body (RFC 9112 §6.3)",
  expect: "meant for this proxy, which handles it itself (RFC 9110 §10.1.1)",
  host: "replaced (RFC 9110 §7.2)",
  proxy: "CGI-like upstreams take it for HTTP_PROXY (CVE-2016-5385); forwardHeaders forwards it",
  "proxy-authorization": "meant for this proxy (RFC 9110 §11.7.2); forwardHeaders forwards it",
};

const HOP_BY_HOP_NAMES = new NameSet(HOP_BY_HOP);

/**
 * Explains why each header field of a request is sent, changed or dropped.
 * @param received the client's fields
 * @param sent the fields that the upstream would get, without `Host` and the message framing
 */
export function explainFields(
  received: HeaderList,
  sent: HeaderList,
  make: MakeFields,
  facts: Facts,
): Pick<Explanation, "fields" | "dropped"> {
  const explained = new ExplainedFields(received, sent, make, facts);
  return {
    fields: toRows(sent, (name) => explained.explainSent(name)),
    dropped: toRows(received, (name) =>
      explained.keeps(name) ? undefined : explained.explainDropped(name),
    ),
  };
}

class ExplainedFields {
  readonly #received: ReadonlyMap<string, string>;
  readonly #sent: ReadonlyMap<string, string>;
  /** The fields that the proxy makes, before `startTrace`, the policy `sticky` and hooks change them. */
  readonly #made: ReadonlyMap<string, string>;
  readonly #unhooked: ReadonlyMap<string, string>;
  /** For each option that is set: the fields that are made without this option. */
  readonly #without: ReadonlyMap<Deciding, ReadonlyMap<string, string>>;
  readonly #nominated: NameSet;
  readonly #facts: Facts;

  constructor(received: HeaderList, sent: HeaderList, make: MakeFields, facts: Facts) {
    this.#received = joinFields(received);
    this.#sent = joinFields(sent);
    this.#made = joinFields(make({}));
    this.#unhooked = joinFields(facts.unhooked);
    const set = DECIDING.filter((name) => facts.options[name] ?? defaults[name as "xfwd"]);
    this.#without = new Map(
      set.map((name) => [name, joinFields(make({ [name]: name === "xfwd" ? false : undefined }))]),
    );
    const connection = this.#received.get("connection") ?? "";
    this.#nominated = new NameSet(connection.split(",").map((name) => name.trim()));
    this.#facts = facts;
  }

  /** Whether the upstream gets this field with the client's value in it. */
  keeps(name: string): boolean {
    return this.#sent.has(name) && this.explainSent(name).keeps === true;
  }

  explainSent(name: string): Reason {
    const before = this.#received.get(name);
    const after = this.#sent.get(name);
    const { options } = this.#facts;
    if (after !== this.#made.get(name)) return this.#explainLate(name, "set");
    const deciding = this.#decidingOn(name);
    if (deciding.includes("headers")) return { reason: "set", option: "headers" };
    // The option that lets the client's value, or the trusted part of it, pass to the upstream.
    const allowing = deciding.find((each) => each === "trustProxy" || each === "forwardHeaders");
    if (after === before) return { reason: "the client's", option: allowing, keeps: true };
    if (deciding.includes("via")) {
      const reason = before === undefined ? "names this proxy" : "the client's, and this proxy";
      return { reason: `${reason} (RFC 9110 §7.6.3)`, option: "via", keeps: true };
    }
    if (deciding.includes("xfwd")) {
      // If a part of the client's value was trusted, the value of this proxy is appended to that part.
      return this.#without.get("xfwd")?.has(name) === true
        ? { reason: "the trusted part of it, and the client", option: allowing, keeps: true }
        : { reason: "about the client (RFC 7239 §5)", option: "xfwd" };
    }
    if (allowing !== undefined) {
      return {
        reason: "the part of it that trusted proxies have written",
        option: allowing,
        keeps: true,
      };
    }
    if (
      after === "identity" &&
      findCovering(Object.keys(options.headers ?? {}), name) === undefined
    )
      return { reason: "the client decodes other codings, which would change the body" };
    const several = this.#listOptions(name);
    return {
      reason: several === "" ? "unknown" : `set; see ${several}`,
      keeps: before !== undefined,
    };
  }

  explainDropped(name: string): Reason {
    const { options, isTrusted } = this.#facts;
    if (HOP_BY_HOP_NAMES.has(name))
      return { reason: "belongs to one connection (RFC 9110 §7.6.1)" };
    if (this.#nominated.has(name)) return { reason: "named in Connection (RFC 9110 §7.6.1)" };
    if (this.#made.get(name) !== this.#sent.get(name)) return this.#explainLate(name, "deleted");
    const { headers = {} } = options;
    const set = findCovering(Object.keys(headers), name);
    const verb = set === undefined ? "dropped" : headers[set] === null ? "deleted" : "replaced";
    const [option] = this.#decidingOn(name);
    if (option === "headers" || option === "filterHeaders") return { reason: verb, option };
    if (option === "xfwd" && isTrusted && !this.#sent.has(name)) {
      return { reason: "the other style could contradict it", option };
    }
    const isAssertion = REQUEST_ASSERTIONS.has(name);
    if (isTrusted && isAssertion && foldName(name) !== name) {
      return { reason: "some upstreams read it as the name with - (CVE-2026-30851)" };
    }
    // Fixed rules drop these fields, unless `forwardHeaders` names them.
    if (findCovering(options.forwardHeaders ?? [], name) === undefined) {
      const own = DROPPED_REASONS[name];
      if (own !== undefined) return { reason: own };
      if (isAssertion && !isTrusted) {
        return {
          reason: "a client could forge it (RFC 7239 §8.1); see trustProxy, forwardHeaders",
        };
      }
    }
    const several = this.#listOptions(name);
    if (several !== "") return { reason: `${verb}; see ${several}` };
    if (isAssertion) {
      return { reason: "no trusted proxy has written it, or it is malformed; see trustProxy" };
    }
    return { reason: this.#sent.has(name) ? "replaced" : "unknown" };
  }

  /** Explains a field that was changed after `make` had made it. */
  #explainLate(name: string, verb: string): Reason {
    const { hooks } = this.#facts;
    const isKept = this.#sent.has(name);
    const unhooked = this.#unhooked.get(name);
    const isChanged = unhooked !== this.#made.get(name);
    // `startTrace` makes another `traceparent` each time, so its values cannot be compared.
    if (isChanged && (name === "traceparent" || (name === "tracestate" && !isKept))) {
      const reason = isKept ? "starts a trace" : "has no valid traceparent";
      return { reason, option: "startTrace" };
    }
    const isCut = name === "cookie" && isChanged && unhooked === this.#sent.get(name);
    if (!isCut) {
      return hooks.length > 0
        ? { reason: verb, option: hooks.join(" or ") }
        : { reason: "unknown" };
    }
    return isKept
      ? {
          reason: "the client's, without the cookie that names its upstream (policy sticky)",
          keeps: true,
        }
      : { reason: "names the upstream of the client, for this proxy (policy sticky)" };
  }

  /** Returns the options that decide about a field. If one of them were not set, the field would be different. */
  #decidingOn(name: string): Deciding[] {
    const made = this.#made.get(name);
    return [...this.#without].flatMap(([option, fields]) =>
      fields.get(name) === made ? [] : [option],
    );
  }

  /** Lists the options that concern a field. Used when no option decides alone, because several have the same effect. */
  #listOptions(name: string): string {
    const { headers = {}, filterHeaders = [] } = this.#facts.options;
    const isAssertion = this.#facts.isTrusted && REQUEST_ASSERTIONS.has(name);
    return [
      ...(findCovering(Object.keys(headers), name) === undefined ? [] : ["headers"]),
      ...(findCovering(filterHeaders, name) === undefined ? [] : ["filterHeaders"]),
      ...(isAssertion ? ["trustProxy", "xfwd"] : []),
    ].join(", ");
  }
}

function toRows(list: HeaderList, explain: (name: string) => Reason | undefined): ExplainedField[] {
  const rows: ExplainedField[] = [];
  for (let i = 0; i < list.length; i += 2) {
    const [name, value] = [list[i] as string, list[i + 1] as string];
    const explained = explain(name.toLowerCase());
    if (explained !== undefined) {
      rows.push({ name, value, reason: explained.reason, option: explained.option });
    }
  }
  return rows;
}

/**
 * Returns the values by name in lower case. Fields with the same name are joined, because some servers have joined them
 * already.
 */
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

/** Returns the name in a list that equals a field name by the rules of `NameSet`, which fold case and punctuation. */
function findCovering(names: readonly string[], name: string): string | undefined {
  return names.find((each) => new NameSet([each]).has(name));
}
