/**
 * The characters that can end a line, move the cursor of a terminal, or change the direction of text: controls, format
 * characters, unassigned and private ones, and the separators of lines and paragraphs.
 */
const UNPRINTABLE = /[\p{C}\p{Zl}\p{Zp}]/gu;
const PRINTABLE_ASCII = /^[ -~]*$/;

/** Renders a value as one line of JSON that has only printable characters. */
export function renderJson(value: unknown): string {
  const text = JSON.stringify(value);
  return PRINTABLE_ASCII.test(text) ? text : text.replace(UNPRINTABLE, escapeInJson);
}

/** Escapes a character as JSON does, with one escape for each UTF-16 unit. */
function escapeInJson(character: string): string {
  return Array.from({ length: character.length }, (_, i) => {
    return `\\u${character.charCodeAt(i).toString(16).padStart(4, "0")}`;
  }).join("");
}

/** The characters that Apache's `ap_escape_logitem` escapes: `"`, `\`, and everything that is not printable ASCII. */
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
 * Escapes a text as Apache does in its access log: `"` and `\` get a backslash, and a byte that is not printable becomes an
 * escape such as `\n`, or otherwise `\xhh`.
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
