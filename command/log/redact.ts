/** Recognizes secrets by the names of header fields and parameters, and replaces them in recordings. Bodies are not changed. */

/** The text that replaces a secret. */
export const REDACTED = "REDACTED";

/** Matches the names of fields and of query parameters whose values are usually secrets. */
export const SECRET_NAME: RegExp =
  /authorization|(?:^|[-_.])auth$|cookie|token|secret|passw|pwd|session|signature|credential|jwt|saml|assertion|dpop|key(?:-?id)?$|(?:^|[-_.])(?:code|otp|pin|sid|sig)$/i;

/** Matches a parameter of a query or a fragment in a URL, which may be inside the value of a field such as `Referer`. */
const PARAMETER = /([?&;#])([^?&;#=\s]+)=([^&;#\s"'<>]+)/g;

/** Replaces the values of secret parameters in a URL, or in a text that contains URLs. */
export function redactQuery(text: string): string {
  return text.replace(PARAMETER, (all: string, separator: string, name: string) =>
    SECRET_NAME.test(name) ? `${separator}${name}=${REDACTED}` : all,
  );
}

/** Replaces the secrets in the value of a field. The names and attributes of cookies are kept. */
export function redactField(name: string, value: string): string {
  const lower = name.toLowerCase();
  if (lower === "cookie") return value.replaceAll(/=[^;]*/g, `=${REDACTED}`);
  if (lower === "set-cookie") return value.replace(/=[^;]*/, `=${REDACTED}`);
  return SECRET_NAME.test(name) ? REDACTED : redactQuery(value);
}
