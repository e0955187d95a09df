/** Recognizes secrets by the names of header fields and parameters, and replaces them in recordings. Bodies are not changed. */

/** The text that replaces a secret. */
export const REDACTED = "REDACTED";

/** Matches the names of fields and of query parameters whose values are usually secrets. */
export const SECRET_NAME: RegExp =
  /authorization|(?:^|[-_.])auth$|cookie|token|secret|passw|pwd|session|signature|credential|jwt|saml|assertion|dpop|key(?:-?id)?$|(?:^|[-_.])(?:code|otp|pin|sid|sig)$/i;

/** Matches a parameter of a query or a fragment in a URL. */
const PARAMETER = /([?&;#])([^?&;#=\s]+)=([^&;#\s]+)/g;
/** Matches a parameter of a URL in the value of a field such as `Refresh` or `Link`, where quotes may surround the URL. */
const PARAMETER_IN_FIELD = /([?&;#])([^?&;#=\s]+)=([^&;#\s"'<>]+)/g;

/** Replaces the values of secret parameters in a URL. */
export function redactQuery(url: string, parameter: RegExp = PARAMETER): string {
  return url.replace(parameter, (all: string, separator: string, name: string) =>
    SECRET_NAME.test(name) ? `${separator}${name}=${REDACTED}` : all,
  );
}

/** Replaces the value of a cookie, or a cookie without a name (RFC 6265 §5.2: the pair has no `=`). */
function redactCookie(pair: string): string {
  return pair.includes("=")
    ? pair.replace(/=.*/s, `=${REDACTED}`)
    : pair.replace(/\S.*/s, REDACTED);
}

/** Replaces the secrets in the value of a field. The names and attributes of cookies are kept. */
export function redactField(name: string, value: string): string {
  const lower = name.toLowerCase();
  if (lower === "cookie") return value.split(";").map(redactCookie).join(";");
  if (lower === "set-cookie") return value.replace(/^[^;]*/, redactCookie);
  return SECRET_NAME.test(name) ? REDACTED : redactQuery(value, PARAMETER_IN_FIELD);
}
