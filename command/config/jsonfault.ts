/** Finds the position of a syntax error in JSON. The messages of `JSON.parse` do not have it on every runtime. */

const SPACE = /[ \t\n\r]*/y;
// oxlint-disable-next-line no-control-regex
const TEXT = /"(?:[^"\\\u0000-\u001f]|\\(?:["\\/bfnrt]|u[\da-fA-F]{4}))*"/y;
const PLAIN = /true|false|null|-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?/y;

/** Thrown at the first wrong token. If a token is missing at the end of the text, `index` is the length of the text. */
class Fault extends Error {
  readonly index: number;
  constructor(index: number) {
    super();
    this.index = index;
  }
}

/**
 * Returns the index at which the first wrong token begins, or the length of a text in which a token is missing at the end.
 * @returns undefined for a text that is JSON
 */
export function findJsonFault(text: string): number | undefined {
  let at = 0;

  function skip(pattern: RegExp): boolean {
    pattern.lastIndex = at;
    if (!pattern.test(text)) return false;
    at = pattern.lastIndex;
    return true;
  }

  function expect(character: string): void {
    if (text[at] !== character) throw new Fault(at);
    at++;
    skip(SPACE);
  }

  function readMembers(end: string, readMember: () => void): void {
    at++;
    skip(SPACE);
    if (text[at] !== end) {
      readMember();
      while (text[at] === ",") {
        expect(",");
        readMember();
      }
    }
    expect(end);
  }

  function readText(): void {
    if (!skip(TEXT)) throw new Fault(at);
    skip(SPACE);
  }

  function readValue(): void {
    if (text[at] === "{") {
      readMembers("}", () => {
        readText();
        expect(":");
        readValue();
      });
    } else if (text[at] === "[") readMembers("]", readValue);
    else if (text[at] === '"') readText();
    else if (!skip(PLAIN)) throw new Fault(at);
    skip(SPACE);
  }

  try {
    skip(SPACE);
    readValue();
    return at < text.length ? at : undefined;
  } catch (error) {
    if (error instanceof Fault) return error.index;
    throw error;
  }
}
