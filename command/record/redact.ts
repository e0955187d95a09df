/** Removes secrets from a recording: from header fields, cookies and queries, by their names. Bodies stay as they are. */

/** What stands in place of a secret. */
export const REDACTED = "REDACTED";

/** Matches the names of fields and of query parameters whose values are usually secrets. */
export const SECRET_NAME: RegExp =
  /authorization|(?:^|[-_.])auth$|cookie|token|secret|passw|pwd|session|signature|credential|jwt|saml|assertion|dpop|key(?:-?id)?$|(?:^|[-_.])(?:code|otp|pin|sid|sig)$/i;

/** Matches a parameter in the query or the fragment of a URL, also inside the value of a field such as `Referer`. */
const PARAMETER = /([?&;#])([^?&;#=\s]+)=([^&;#\s"'<>]+)/g;

/** Removes the values of secret parameters from a URL, or from a text that contains URLs. */
export function redactQuery(text: string): string {
  return text.replace(PARAMETER, (all: string, separator: string, name: string) =>
    SECRET_NAME.test(name) ? `${separator}${name}=${REDACTED}` : all,
  );
}

/** Removes the secrets from the value of a field. Names and attributes of cookies stay. */
export function redactField(name: string, value: string): string {
  const lower = name.toLowerCase();
  if (lower === "cookie") return value.replaceAll(/=[^;]*/g, `=${REDACTED}`);
  if (lower === "set-cookie") return value.replace(/=[^;]*/, `=${REDACTED}`);
  return SECRET_NAME.test(name) ? REDACTED : redactQuery(value);
}
