/** The control and format characters that `JSON.stringify` does not escape, although a terminal may obey them. */
const UNPRINTABLE_IN_JSON = /[\u007f-\u009f\u2028\u2029\u200b-\u200f\u202a-\u202e\u2066-\u2069]/g;

/** Renders a value as one line of JSON that has only printable characters. */
export function renderJson(value: unknown): string {
  return JSON.stringify(value).replace(
    UNPRINTABLE_IN_JSON,
    (character) => `\\u${character.charCodeAt(0).toString(16).padStart(4, "0")}`,
  );
}

/** The characters that Apache's `ap_escape_logitem` escapes: all but printable ASCII, and `"` and `\`. */
const APACHE_ESCAPED = /[^ !#-[\]-~]/;
const APACHE_LETTERS: Readonly<Record<number, string>> = {
  0x08: "\\b",
  0x09: "\\t",
  0x0a: "\\n",
  0x0b: "\\v",
  0x0d: "\\r",
  0x22: '\\"',
  0x5c: "\\\\",
};
const encoder = new TextEncoder();

/**
 * Escapes a text as Apache does in its access log: `"` and `\` get a backslash, and a byte that is not printable becomes
 * `\n`, `\t` or `\xhh`.
 * @see https://httpd.apache.org/docs/2.4/mod/mod_log_config.html#format-notes
 */
export function escapeAsApache(text: string): string {
  if (!APACHE_ESCAPED.test(text)) return text;
  let escaped = "";
  for (const byte of encoder.encode(text)) {
    const isPlain = byte >= 0x20 && byte < 0x7f && byte !== 0x22 && byte !== 0x5c;
    escaped += isPlain
      ? String.fromCharCode(byte)
      : (APACHE_LETTERS[byte] ?? `\\x${byte.toString(16).padStart(2, "0")}`);
  }
  return escaped;
}
