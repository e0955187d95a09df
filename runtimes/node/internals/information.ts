/**
 * How an interim response (1xx) is written with all of its fields.
 *
 * - Rests on: `response.writeInformation(status, list)`, which only newer versions of Node have, takes a flat list of names and
 *   values, as `writeHead` does. `writeEarlyHints`, which all versions have, needs a `Link`, checks its syntax, and joins
 *   repeated fields.
 * - Check: the method is called once on a stand-in that records the text, and the text must be as expected.
 * - Otherwise: 103 (Early Hints) is sent by `writeEarlyHints` if that accepts its `Link`, 102 (Processing) by
 *   `writeProcessing`, without its fields; other interim responses are left out.
 * - Test: test/runtimes/node/internals/information.test.ts.
 */
import type { ServerResponse } from "node:http";
import type { HeaderList } from "../../../src/fields/headers.ts";

type WriteInformation = (this: object, status: number, headers: HeaderList) => void;

/** A response, which has the method on newer versions of Node. */
type Informing = ServerResponse & { readonly writeInformation?: WriteInformation };

/** For each `writeInformation` that was checked, whether it takes a flat list. */
const checked: WeakMap<WriteInformation, boolean> = new WeakMap();

const EXPECTED = "HTTP/1.1 103 Early Hints\r\nLink: <a>\r\nLink: <b>\r\n\r\n";

function takesList(write: WriteInformation): boolean {
  let takes = checked.get(write);
  if (takes === undefined) {
    takes = writesList(write);
    checked.set(write, takes);
  }
  return takes;
}

function writesList(write: WriteInformation): boolean {
  let text = "";
  const standIn = {
    headersSent: false,
    _header: null,
    _isLenientHeaderValidation: () => false,
    _writeRaw: (written: string) => void (text += written),
  };
  try {
    write.call(standIn, 103, ["Link", "<a>", "Link", "<b>"]);
  } catch {
    return false;
  }
  return text === EXPECTED;
}

/**
 * Writes an interim response. An older Node can write only 102, without its fields, and 103 with a `Link` that Node accepts;
 * other responses are left out.
 */
export function writeInformation(res: Informing, status: number, headers: HeaderList): void {
  const write = res.writeInformation;
  if (write !== undefined && takesList(write)) return write.call(res, status, headers);
  if (status === 102) return res.writeProcessing();
  const hints = status === 103 ? toHints(headers) : undefined;
  if (hints === undefined) return;
  try {
    res.writeEarlyHints(hints);
  } catch {
    // Node rejects this `Link`. Leave out the interim response: the final response usually has the same field.
  }
}

/**
 * Returns the fields for `writeEarlyHints`, with the lines of each field joined; undefined if there is no `Link`. Of several
 * `Set-Cookie` lines, which must not be joined (RFC 9110 §5.3), the last one stays.
 */
function toHints(list: HeaderList): Record<string, string | string[]> | undefined {
  const link: string[] = [];
  const others: Map<string, string> = new Map();
  for (let i = 0; i < list.length; i += 2) {
    const name = (list[i] as string).toLowerCase();
    const value = list[i + 1] as string;
    const before = name === "set-cookie" ? undefined : others.get(name);
    if (name === "link") link.push(value);
    else others.set(name, before === undefined ? value : `${before}, ${value}`);
  }
  return link.length === 0 ? undefined : { ...Object.fromEntries(others), link };
}
