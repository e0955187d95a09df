/** Which responses shared caches may store (RFC 9111 §3). */
import { expect, test } from "vitest";
import type { HeaderList } from "../../../src/fields/headers.ts";
import { mayShare } from "../../../src/upstreams/sharedcaches.ts";

const TOMORROW = new Date(Date.now() + 86_400_000).toUTCString();

test.each<[ReturnType<typeof mayShare>, HeaderList]>([
  ["never", ["cache-control", "no-store"]],
  ["never", ["Cache-Control", "max-age=60, Private"]],
  ["never", ["cache-control", "public, max-age=60", "cache-control", "private"]],
  ["never", ["cache-control", "s-maxage=60, no-store"]],
  ["by-default", []],
  ["by-default", ["cache-control", "no-cache", "expires", "-1"]],
  ["by-default", ["cache-control", "max-age=0, must-revalidate"]],
  ["by-default", ["cache-control", "max-age=60, s-maxage=0"]],
  ["by-default", ["cache-control", "max-age=0", "expires", TOMORROW]],
  ["by-default", ["expires", "Thu, 01 Jan 1970 00:00:00 GMT"]],
  // `private` with the names of fields, and a quoted text that only looks like a directive.
  ["by-default", ["cache-control", 'private="set-cookie"']],
  ["by-default", ["cache-control", 'x="a, no-store, private"']],
  ["as-it-says", ["cache-control", "public"]],
  ["as-it-says", ["cache-control", "public, max-age=0"]],
  ["as-it-says", ["cache-control", "max-age=60"]],
  ["as-it-says", ["cache-control", 'MAX-AGE="60"']],
  ["as-it-says", ["cache-control", "max-age=0, s-maxage=60"]],
  ["as-it-says", ["cache-control", 'private="x-name", max-age=60']],
  ["as-it-says", ["cache-control", "no-store, must-understand, max-age=60"]],
  ["as-it-says", ["expires", TOMORROW]],
  // A content delivery network obeys the targeted field (RFC 9213 §2.2).
  ["as-it-says", ["cache-control", "private", "CDN-Cache-Control", "max-age=60"]],
  ["as-it-says", ["surrogate-control", "max-age=60", "cache-control", "no-store"]],
  ["never", ["cdn-cache-control", "no-store", "cache-control", "private"]],
])("mayShare returns %s for %j", (answer, headers) => {
  expect(mayShare(headers)).toBe(answer);
});
