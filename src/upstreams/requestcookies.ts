import { getHeaders, isName, trimOws, type HeaderList } from "../fields/headers.ts";

/**
 * Returns the values of the cookies with this name. A request of HTTP/2 may have a separate field for each cookie (RFC 9113
 * §8.2.3).
 */
export function readCookies(headers: HeaderList, name: string): string[] {
  const fields = getHeaders(headers, "cookie");
  return fields.flatMap((field) =>
    // Most requests have only other cookies, so do not split the field unless it contains the name.
    field.includes(name) ? field.split(";").flatMap((pair) => valueOf(pair, name) ?? []) : [],
  );
}

/**
 * Removes cookies with this name from header fields, in place. All other cookies keep their bytes.
 * @param isCut returns whether to remove the cookie with this value
 */
export function cutCookies(
  headers: HeaderList,
  name: string,
  isCut: (value: string) => boolean,
): void {
  let end = 0;
  for (let i = 0; i < headers.length; i += 2) {
    const field = headers[i] as string;
    let value = headers[i + 1] as string;
    if (isName(field, "cookie") && value.includes(name)) {
      const pairs = value.split(";");
      const left = pairs.filter((pair) => {
        const found = valueOf(pair, name);
        return found === undefined || !isCut(found);
      });
      if (left.length < pairs.length) value = trimOws(left.join(";"));
      if (value === "") continue;
    }
    headers[end++] = field;
    headers[end++] = value;
  }
  headers.length = end;
}

/** Returns the value in a pair `name=value` of a Cookie field; undefined if the cookie has another name. */
function valueOf(pair: string, name: string): string | undefined {
  const equals = pair.indexOf("=");
  return equals >= 0 && trimOws(pair.slice(0, equals)) === name
    ? trimOws(pair.slice(equals + 1))
    : undefined;
}
