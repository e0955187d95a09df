/** The conditions of a route: the methods, header fields and query parameters of the requests that the route takes. */
import { findWrong, isRecord, type Kind, quoteInput, type Schema } from "#fetchway/options";
import { TOKEN } from "#fetchway/requests";
import { SECRET_NAME } from "../log/redact.ts";

/** A pattern for each name. `*` matches any characters. */
type Values = Readonly<Record<string, string>>;

/** The condition of a route, in addition to the host and the path. A request must satisfy all members. */
export interface RouteCondition {
  /**
   * One method, or several allowed methods. `"GET"` does not include HEAD.
   * @example ["GET", "HEAD"]
   */
  method?: string | readonly string[];
  /**
   * A pattern for the value of each header field. `*` matches any characters. The lines of a repeated field are
   * joined.
   * @example { "x-beta": "1", cookie: "*beta=1*", "content-type": "application/grpc*" }
   */
  headers?: Values;
  /**
   * A pattern for the decoded value of each query parameter. `*` matches any characters. If a parameter is
   * repeated, one of its values must match.
   * @example { version: "2", preview: "*" }
   */
  query?: Values;
}

/** The parts of a request that decide which route takes it. */
export interface RoutableRequest {
  readonly method: string;
  /** An absolute URL, or a path. */
  readonly url: string;
  readonly headers: Pick<Headers, "get">;
}

export const methods: Kind<string | readonly string[]> = {
  name: "names",
  check(value) {
    const list = [value].flat();
    const wrong = list.find((each) => typeof each !== "string" || !TOKEN.test(each));
    if (list.length === 0 || wrong !== undefined) {
      return 'use a method such as "POST", or an array of several';
    }
    // Methods are case-sensitive (RFC 9110 §9.1), and all standard methods are in capital letters.
    const lower = list.find((each) => /^[a-z]+$/.test(each as string)) as string | undefined;
    return lower && `write ${quoteInput(lower.toUpperCase())}`;
  },
};

/** @param example shows the form of the option in messages */
function values(name: "fields" | "map", example: string): Kind<Values> {
  return {
    name,
    check(value) {
      if (!isRecord(value)) return `use an object such as ${example}`;
      for (const [key, each] of Object.entries(value)) {
        if (name === "fields" && !TOKEN.test(key)) return `${quoteInput(key)} is not a field name`;
        if (typeof each === "string" && each !== "") continue;
        return `${quoteInput(key)}: use a text in which * stands for any characters`;
      }
      return undefined;
    },
  };
}
export const headerValues: Kind<Values> = values("fields", '{ "x-beta": "1" }');
export const queryValues: Kind<Values> = values("map", '{ version: "2" }');

const conditionSchema: Schema<RouteCondition> = {
  method: { kind: methods },
  headers: { kind: headerValues },
  query: { kind: queryValues },
};

/** Returns the fault of a condition, as a part of a message; undefined if the condition is valid. */
export function checkCondition(when: unknown): string | undefined {
  if (!isRecord(when) || Object.keys(when).length === 0) {
    return 'use an object such as { method: "POST", headers: { "x-beta": "1" } }';
  }
  const [name, wrong] = findWrong(when, conditionSchema) ?? [];
  return wrong && `${name}: ${wrong}`;
}

/** Returns a function that tests whether a request satisfies a condition. The condition must be valid (`checkCondition`). */
export function compileCondition({
  method,
  headers = {},
  query = {},
}: RouteCondition): (request: RoutableRequest) => boolean {
  const accepted = method === undefined ? undefined : new Set([method].flat());
  const fields = Object.entries(headers).map(([name, value]) => [name, toPattern(value)] as const);
  const parameters = Object.entries(query).map(
    ([name, value]) => [name, toPattern(value)] as const,
  );
  return (request) => {
    if (accepted?.has(request.method) === false) return false;
    for (const [name, pattern] of fields) {
      const value = request.headers.get(name);
      if (value === null || !pattern.test(value)) return false;
    }
    if (parameters.length === 0) return true;
    const mark = request.url.indexOf("?");
    const given = new URLSearchParams(mark < 0 ? "" : request.url.slice(mark));
    return parameters.every(([name, pattern]) =>
      given.getAll(name).some((each) => pattern.test(each)),
    );
  };
}

function toPattern(value: string): RegExp {
  const parts = value.split("*").map((part) => part.replace(/[^\w\s]/g, String.raw`\$&`));
  return new RegExp(`^${parts.join(".*")}$`, "s");
}

/** Returns the name of a route for messages: its patterns and its condition, without values that may be secrets. */
export function describeRoute({
  match,
  when,
}: {
  readonly match: readonly string[];
  readonly when?: RouteCondition | undefined;
}): string {
  const patterns = match.join(", ");
  if (when === undefined) return patterns;
  const { method = [], headers = {}, query = {} } = when;
  const parts = [
    ...[[method].flat().join("|")].filter((each) => each !== ""),
    ...Object.entries(headers).map((each) => joinShown(each, ": ")),
    ...Object.entries(query).map((each) => `?${joinShown(each, "=")}`),
  ];
  return `${patterns} [${parts.join(", ")}]`;
}

function joinShown([name, value]: readonly [string, string], between: string): string {
  return `${name}${between}${SECRET_NAME.test(name) ? "…" : value}`;
}
