/**
 * The characters that can end a line, move the cursor of a terminal, or change the direction of text: controls, format
 * characters, unassigned and private ones, and the separators of lines and paragraphs.
 */
const UNPRINTABLE = /[\p{C}\p{Zl}\p{Zp}]/gu;
const PRINTABLE_ASCII = /^[ -~]*$/;

/** Makes a text safe to print: a character that is not printable becomes an escape such as `\n` or `\u{1b}`. */
export function escapeControls(text: string): string {
  return PRINTABLE_ASCII.test(text) ? text : text.replace(UNPRINTABLE, escapeCharacter);
}

function escapeCharacter(character: string): string {
  if (character === "\n") return "\\n";
  if (character === "\t") return "\\t";
  return `\\u{${(character.codePointAt(0) as number).toString(16)}}`;
}
