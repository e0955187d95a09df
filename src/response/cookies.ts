/**
 * One new value for all old ones, or a map from old values to new ones, in which `"*"` stands for all other old values.
 */
type Values = string | Readonly<Record<string, string>>;

/** Returns the new value of an attribute; `""` to remove the attribute, undefined to keep it. */
type Change = (value: string) => string | undefined;

/** Matches the name and value of a cookie, or one attribute. A `;` inside a quoted value does not end the attribute. */
const PART = /(?:^|;)[^=;]*(?:=[ \t]*"[^"]*"[ \t]*(?=;|$)|[^;]*)/g;

/** Matches an attribute that may be rewritten, up to its value. */
const ATTRIBUTE = /^;[ \t]*(domain|path)[ \t]*=[ \t]*"?/i;
/** Matches the attributes that do not work over plain HTTP: `Secure`, and attributes that clients accept only with `Secure`. */
const SECURE =
  /^;[ \t]*(?:(?:secure|partitioned)[ \t]*(?:=|$)|samesite[ \t]*=[ \t]*"?none"?[ \t]*$)/i;
/** Matches a cookie whose name makes clients refuse it without `Secure`. */
const PREFIXED = /^[ \t]*__(?:host|http|secure)-/i;
/** Matches the text that may follow the value of an attribute: a quote, spaces and tabs. */
const ATTRIBUTE_END = /^"?[ \t]*$/;

/**
 * Compiles the options for cookies into a function that rewrites a `Set-Cookie` value. The function replaces the values of the
 * attributes `Domain` and `Path`, or removes these attributes and those that `SECURE` matches. It changes no other byte.
 * @param secure whether cookies keep the attributes that `SECURE` matches
 * @returns undefined if no option asks for a rewrite
 * @see https://www.rfc-editor.org/rfc/rfc6265#section-5.2
 */
export function compileCookieRewrite(
  domains: Values | undefined,
  paths: Values | undefined,
  secure = true,
): ((cookie: string) => string) | undefined {
  if (domains === undefined && paths === undefined && secure) return undefined;
  const ofDomain = toChange(domains, plainDomain);
  const ofPath = toChange(paths, (path) => path);
  return (cookie) => {
    const keepsSecure = secure || PREFIXED.test(cookie);
    return cookie.replace(PART, (part) => {
      if (!keepsSecure && SECURE.test(part)) return "";
      const [before = "", name = ""] = ATTRIBUTE.exec(part) ?? [];
      if (name === "") return part;
      const end = findValueEnd(part);
      const after = part.slice(end);
      // Leave an attribute without a value as it is, because clients ignore the attribute.
      if (end <= before.length || !ATTRIBUTE_END.test(after)) return part;
      const changed = (name.length === 4 ? ofPath : ofDomain)(part.slice(before.length, end));
      if (changed === undefined) return part;
      return changed === "" ? "" : before + changed + after;
    });
  };
}

/**
 * Returns the index at which the value of an attribute ends; white space and quotes may follow. A regular expression would
 * begin a search at every character, which takes quadratic time.
 */
function findValueEnd(part: string): number {
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

/** Returns a domain as clients compare it: they ignore letter case and a leading dot (RFC 6265 §5.2.3). */
function plainDomain(domain: string): string {
  return domain.replace(/^\./, "").toLowerCase();
}
