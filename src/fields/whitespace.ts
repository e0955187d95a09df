/**
 * A field value, or a member of one, without the spaces and tabs around it (OWS, RFC 9110 §5.6.3).
 *
 * `String.prototype.trim` also removes U+00A0 and other Unicode white space, which are bytes of the
 * value: two proxies on one path would then read two values. A regular expression that ends in `$`
 * would take quadratic time for a run of spaces in the middle.
 */
export function trimOws(value: string): string {
  let start = 0;
  let end = value.length;
  while (start < end && isOws(value.charCodeAt(start))) start++;
  while (end > start && isOws(value.charCodeAt(end - 1))) end--;
  return end - start === value.length ? value : value.slice(start, end);
}

function isOws(code: number): boolean {
  return code === 0x20 || code === 0x09;
}
