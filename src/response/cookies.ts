/** A value for all, or a map of values; `"*"` is any other. */
type Values = string | Readonly<Record<string, string>>;

/** The new value of an attribute: `""` takes the attribute off, undefined leaves it. */
type Change = (value: string) => string | undefined;

/** A cookie or an attribute; quotes around a whole value keep what is in them together. */
const PART = /(?:^|;)[^=;]*(?:=[ \t]*"[^"]*"[ \t]*(?=;|$)|[^;]*)/g;

/** An attribute that may be rewritten, up to its value. */
const ATTRIBUTE = /^;[ \t]*(domain|path)[ \t]*=[ \t]*"?/i;
/** What may stand behind a value. */
const ATTRIBUTE_END = /^"?[ \t]*$/;

/**
 * Rewrites a `Set-Cookie` value: the attributes named, and not a byte beside them.
 * @returns undefined if there is nothing to rewrite
 * @see https://www.rfc-editor.org/rfc/rfc6265#section-5.2
 */
export function compileCookieRewrite(
  domains: Values | undefined,
  paths: Values | undefined,
): ((cookie: string) => string) | undefined {
  if (domains === undefined && paths === undefined) return undefined;
  const ofDomain = toChange(domains, plainDomain);
  const ofPath = toChange(paths, (path) => path);
  return (cookie) =>
    cookie.replace(PART, (part) => {
      const [before = "", name = ""] = ATTRIBUTE.exec(part) ?? [];
      if (name === "") return part;
      const end = valueEnd(part);
      const after = part.slice(end);
      // Without a value it is no attribute to a client.
      if (end <= before.length || !ATTRIBUTE_END.test(after)) return part;
      const changed = (name.length === 4 ? ofPath : ofDomain)(part.slice(before.length, end));
      if (changed === undefined) return part;
      return changed === "" ? "" : before + changed + after;
    });
}

/**
 * Where the value at the end of an attribute ends: white space and quotes behind it stay. A regular expression
 * would look for it from each character on, which takes quadratic time.
 */
function valueEnd(part: string): number {
  let end = part.length;
  while (end > 0 && ' \t"'.includes(part.charAt(end - 1))) end--;
  return end;
}

function toChange(values: Values | undefined, plain: (value: string) => string): Change {
  if (values === undefined) return () => undefined;
  if (typeof values === "string") return () => values;
  const map = new Map(Object.entries(values).map(([from, to]) => [plain(from), to]));
  return (value) => map.get(plain(value)) ?? map.get("*");
}

/** Clients ignore case and a leading dot (RFC 6265 §5.2.3). */
function plainDomain(domain: string): string {
  return domain.replace(/^\./, "").toLowerCase();
}
