import { ProxyError } from "../error.ts";
import { takeAll } from "../fields/take.ts";
import type { HeaderList } from "../transport.ts";
import { trimOws } from "../fields/whitespace.ts";

/**
 * Appends this proxy to `Via`.
 * @param version HTTP version that the request came in
 * @throws ProxyError 508 if it is there already: the request goes in circles
 * @see https://www.rfc-editor.org/rfc/rfc9110#section-7.6.3
 */
export function addVia(headers: HeaderList, pseudonym: string, version: string): void {
  const passed = takeAll(headers, "via").filter((each) => trimOws(each) !== "");
  const names = passed.join(",").split(",").map(nameOf);
  if (names.includes(pseudonym.toLowerCase())) {
    throw new ProxyError("proxy_loop_detected", {
      message: `the request has passed ${pseudonym} before`,
    });
  }
  headers.push("Via", [...passed, `${version} ${pseudonym}`].join(", "));
}

/** Who an entry names: `1.1 name (comment)`. */
function nameOf(entry: string): string | undefined {
  return trimOws(entry)
    .split(/[ \t(]+/)[1]
    ?.toLowerCase();
}
