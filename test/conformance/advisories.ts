/** Advisories about proxies and HTTP clients, whose mechanisms the tests try on Fetchway. SECURITY.md has a table of them. */

/** A fault of other programs that one or more advisories describe. */
export interface Advisory {
  /** The names of the advisories with this mechanism. */
  readonly ids: readonly string[];
  /** What happens here instead, as one sentence. */
  readonly says: string;
  /** The reason why no test tries it yet. */
  readonly untested?: string;
}

/** Matches the name of an advisory in the title of a test. */
export const ADVISORY_ID: RegExp =
  /\b(?:CVE-\d{4}-\d{4,}|GHSA(?:-[2-9cfghjmpqrvwx]{4}){3}|bun#\d+)\b/g;

function group(rows: Readonly<Record<string, string>>): Advisory[] {
  return Object.entries(rows).map(([ids, says]) => ({ ids: ids.split(", "), says }));
}

/** The advisories by subject, in the order of the table. */
export const advisories: Readonly<Record<string, readonly Advisory[]>> = {
  "Trust in header fields": group({
    "CVE-2026-88011":
      "Names with `.` or another character in place of `-` are dropped like the names themselves.",
    "CVE-2026-88004": "Trailer fields pass the same filters as header fields.",
    "CVE-2026-39858, CVE-2026-30851":
      "Names with `_` in place of `-` are dropped like the names themselves.",
    "GHSA-f59h-q822-g45g": "`filterHeaders` drops a name in each of its spellings.",
    "CVE-2026-35051": "A client's `X-Forwarded-Prefix` does not reach the upstream.",
    "CVE-2021-33197, CVE-2026-33805, GHSA-62c8-mh53-4cqv, GHSA-92mv-8f8w-wq52":
      "A field that the proxy sets stays if the client names it in `Connection`.",
    "GHSA-7r4p-vjf4-gxv4":
      "A field that a hook sets for some requests is dropped from clients by `filterHeaders`.",
    "GHSA-79qm-7rj5-m7r9": "Response fields that `Connection` names are dropped.",
    "CVE-2026-3635":
      "The scheme and the host of a request are also taken only from a trusted peer. Exception: the scheme on Deno (docs/security.md).",
    "CVE-2026-47674": "`trustProxy` compares addresses, not spellings of addresses.",
    "CVE-2023-45143, CVE-2024-30260": "A redirect to another origin loses the credentials.",
  }),
  "Where requests go": group({
    "CVE-2026-88009": "A request target that is neither a path nor a URL is refused.",
    "CVE-2026-44578, GHSA-c4j6-fc7j-m34r":
      "A request target, with or without an upgrade, does not select the upstream.",
    "CVE-2026-33131, CVE-2026-33732":
      "The authority and the path that the router sees are those that the upstream gets.",
    "CVE-2024-21536": "A malformed request target is refused, or forwarded as it is.",
    "CVE-2026-48020": "A path cannot leave the prefix that `stripPrefix` removes.",
    "CVE-2026-40912": "A path that has a prefix only after decoding does not match the prefix.",
    "CVE-2026-44373, GHSA-2q7r-29rg-6m5h, GHSA-5w89-w975-hf9q, GHSA-qmw8-3v4g-gwj4":
      "A path cannot leave the target's base path, however it is encoded.",
    "GHSA-gm3x-23wp-hc2c": "Encoded delimiters in a path choose no other route of the command.",
    "CVE-2026-27587, CVE-2026-27588":
      "The command reads hosts and paths in the same way with one route and with hundreds.",
    "CVE-2026-55602": "A `Host` that only contains the name of a route does not match it.",
    "CVE-2026-29087": "The upstream gets the bytes of the path that a guard in front has read.",
    "CVE-2026-47676": "A mount is removed from the path as the client sent it.",
    "CVE-2022-2880, CVE-2026-39825":
      "The query passes byte for byte, and a hook sees all of its parameters.",
    "CVE-2026-77281": "`pathRewrite` inserts a path's text literally.",
    "GHSA-v574-6498-x57v": "Upstreams with similar names share no connection.",
  }),
  "Message framing": group({
    "CVE-2026-29057": "Naming `Upgrade` or `Transfer-Encoding` does not remove a body's framing.",
    "CVE-2026-26365": "Naming `Transfer-Encoding` in `Connection` does not cut a body.",
    "CVE-2026-1525":
      "No message is sent with two `Content-Length` fields, even if a hook or interceptor has set one.",
    "CVE-2026-1527": "The option `upgrades` takes no line ends.",
    "CVE-2026-2833": "Bytes after a refused upgrade are not passed to the upstream as raw data.",
    "CVE-2026-2835":
      "An HTTP/1.0 request with `Transfer-Encoding` and `Content-Length` is refused.",
    "CVE-2025-4366": "A body that a hook leaves unread is not read as the next request.",
    "CVE-2024-23326": "A response with `Upgrade` that is not a 101 is an ordinary response.",
    "CVE-2026-58055": "An upgrade with a body is refused.",
    "CVE-2026-88008": "h2c is not offered to upstreams.",
    "CVE-2026-71324": "A CONNECT over HTTP/2 is refused, and its data answers no other request.",
    "CVE-2026-33555": "An HTTP/2 request whose body has another length than announced is reset.",
    "CVE-2026-42581":
      "An HTTP/1.0 response with `Transfer-Encoding` and `Content-Length` is refused.",
    "CVE-2026-2332": "A message with a line end in a quoted chunk extension is refused.",
    "CVE-2025-22871, CVE-2025-55315": "A bare LF ends neither a chunk size nor a chunk extension.",
    "CVE-2025-43859": "A chunk that does not end with CRLF is refused.",
    "bun#29732": "A body whose last chunk is missing or truncated is not complete.",
    "CVE-2026-23527": "`Transfer-Encoding` is compared without regard to case.",
    "CVE-2026-54387": "A list of transfer codings beside `Content-Length` hides no second request.",
    "CVE-2023-38697": "A length with anything but digits is refused, in both directions.",
    "CVE-2024-24791": "An early response to an expectation leaves no body on the connection.",
    "CVE-2026-55603, GHSA-v2v2-hph8-q5xp": "Bodies are forwarded without being parsed.",
  }),
  "Data of upstreams": group({
    "CVE-2026-48931, GHSA-35p6-xmwp-9g52":
      "A response on an idle connection does not answer the next request.",
    "CVE-2026-1642": "Bytes that an upstream sends before the TLS handshake are an error.",
    "CVE-2026-42926": "A body that a hook has replaced arrives with its own bytes over HTTP/2.",
    "CVE-2026-22036":
      "`fetchway/bodies` decodes at most 5 content codings, each within the limit of the body.",
  }),
  "Exhaustion of resources": [
    ...group({
      "CVE-2026-2581, CVE-2026-25224": "The side that does not read stops the one that sends.",
      "CVE-2026-1526, CVE-2026-1528, CVE-2026-2229, CVE-2026-48779, GHSA-vxpw-j846-p89q":
        "A WebSocket message that is huge, or has very many fragments, takes no memory beyond a limit.",
      "CVE-2023-44487, CVE-2024-27983": "Floods of HTTP/2 frames from an upstream are bounded.",
      "CVE-2019-9512, CVE-2019-9515, CVE-2019-9518":
        "Floods of control frames and of empty frames from an upstream are bounded.",
      "CVE-2026-47774": "Header blocks that HPACK expands take bounded memory of the command.",
      "CVE-2026-33814": "Settings of an upstream that no frame can satisfy are an error.",
      "CVE-2026-21714, CVE-2026-48937":
        "HTTP/2 clients that overflow their windows leave no session in the command.",
    }),
    ...group({
      "CVE-2026-88012":
        "Clients that are too slow do not hold every upstream connection: while others wait, a minimum rate ends some of them.",
      "CVE-2025-24010":
        "Pages of other sites cannot reach the status page, nor Vite's server through the plugin.",
    }),
  ],
};
