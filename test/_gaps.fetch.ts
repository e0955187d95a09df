/** What is lost with the global `fetch`, or undici, in place of the proxy's own client, beside what the server cannot do. */
import type { ClientHost } from "./_host.ts";
import type { TestName } from "./_suite.ts";

export type Loss = [reason: string, hosts: readonly ClientHost[], tests: readonly TestName[]];

const FETCH = ["fetch-node", "fetch-bun", "fetch-deno"] as const;
const UNDICI = ["undici", "fetch-node"] as const;
const [ON_NODE, ON_BUN, ON_DENO] = [["fetch-node"], ["fetch-bun"], ["fetch-deno"]] as const;
const NODE_AND_BUN = ["fetch-node", "fetch-bun"] as const;
const BUN_AND_DENO = ["fetch-bun", "fetch-deno"] as const;
const NODE_AND_DENO = ["fetch-node", "fetch-deno"] as const;

export const losses: readonly Loss[] = [
  [
    "undici sends a request's head with the first chunk of its body",
    UNDICI,
    [
      "an upload's head goes ahead of its body",
      "a connection is kept after a sized body that came later than its head",
    ],
  ],
  [
    "undici refuses a 100 that it has not asked for",
    UNDICI,
    ["an unsolicited 100 before the final response does no harm"],
  ],
  [
    "fetch cannot set Host",
    FETCH,
    [
      "changeOrigin: false keeps the client's Host",
      "host sets an explicit Host, via appends to Via",
      "14 CVE-2026-33131, CVE-2026-33732: a Host that is no authority is refused",
      "14 RFC 9112 §3.2.2: where absolute-form and Host disagree, all see one name, or it is refused",
      "14 RFC 9112 §3.2.2: where absolute-form and Host disagree, it is refused",
      "absolute-form that agrees with Host is forwarded",
      "a client's Host is never told back",
      "where the client's Host is sent, it is a name of the target",
    ],
  ],
  ["fetch cannot set Host", NODE_AND_BUN, ["a request with two Host fields is refused"]],
  [
    "fetch cannot set Host",
    ON_NODE,
    [
      "RFC 9110 §15.6.6: a request line of another HTTP version is refused, by 505 where it is told",
    ],
  ],
  [
    "fetch adds fields of its own: Accept, Accept-Language, User-Agent",
    FETCH,
    [
      "20 CVE-2026-30851: copies and _ aliases of what the proxy sets or deletes are gone",
      "nothing is invented or overwritten in a request",
    ],
  ],
  ["fetch has no TRACE: it gets 501", FETCH, ["TRACE counts Max-Forwards down"]],
  [
    "fetch joins repeated fields and lower-cases their names",
    FETCH,
    [
      "repeated request fields stay separate lines",
      "repeated response fields stay separate lines",
      "the case of response field names is kept",
    ],
  ],
  [
    "fetch joins repeated fields and lower-cases their names",
    BUN_AND_DENO,
    ["the case of request field names is kept"],
  ],
  [
    "Node's fetch collects the fields in a plain object",
    ON_NODE,
    ["__proto__ is an ordinary field name in a request"],
  ],
  [
    "fetch decodes bodies, and is told to ask for none that are encoded",
    FETCH,
    [
      "a gzip body is untouched",
      "a br body is untouched",
      "a zstd body is untouched",
      "stacked, unknown and untrue codings are untouched",
      "a chunked gzip body is untouched",
      "HEAD of a gzip resource keeps its fields",
      "accept-encoding stays absent when absent, and empty or identity when so",
      "206 of a gzip resource is untouched",
      "a stall within a gzip body past idleTimeout fails the body",
      "a body that idleTimeout watches keeps its length and its bytes",
    ],
  ],
  [
    "fetch decodes bodies, and is told to ask for none that are encoded",
    ON_BUN,
    ["a gzip body that breaks off fails for the client"],
  ],
  [
    "fetch sends a streamed body in chunks, without its length",
    NODE_AND_BUN,
    [
      "a gzip request body is untouched",
      "methods with a body keep it",
      "an upload with content-length stays a stream and keeps it",
    ],
  ],
  [
    "fetch itself moves uploads of up to 64 KiB: their chunks are not seen",
    FETCH,
    ["a small upload of known length that keeps coming is not cut"],
  ],
  ["fetch parses the URL", FETCH, ["characters that URL parsers escape keep their bytes"]],
  [
    "Bun's fetch removes slashes at the beginning of a path",
    ON_BUN,
    [
      "path and query keep their bytes",
      "14 CVE-2026-33131: the path that the router saw is the one that is forwarded",
    ],
  ],
  [
    "Bun's fetch sends content-length: 0 with DELETE",
    ON_BUN,
    ["methods without a body have no framing"],
  ],
  ["Node's fetch fails on 407", ON_NODE, ["every common status passes with its body"]],
  [
    "Node's fetch closes the connection after each HEAD",
    ON_NODE,
    ["HEAD keeps content-length and has no body"],
  ],
  [
    "fetch says the same of refused, broken and malformed connections",
    FETCH,
    [
      "garbage gets 502",
      "fault: the upstream sends garbage",
      "fault: the upstream sends 100 000 fields",
      "fault: the upstream sends fields without end",
    ],
  ],
  [
    "fetch says the same of refused, broken and malformed connections",
    NODE_AND_DENO,
    ["headers that overflow get 502", "fault: the upstream sends a field of 1 MiB"],
  ],
  [
    "Bun's fetch takes response heads of any size",
    ON_BUN,
    ["headers that overflow get 502", "fault: the upstream sends a field of 1 MiB"],
  ],
  [
    "fetch refuses some ports, such as 1, by itself",
    NODE_AND_DENO,
    [
      "24 h3 936f14ba: a refused connection gets 502 that names no address",
      "fault: the upstream refuses the connection",
    ],
  ],
  [
    "fetch takes any number of interim responses; `timeout` ends it",
    FETCH,
    [
      "fault: the upstream sends 1000 interim responses first",
      "fault: the upstream sends interim responses without end",
    ],
  ],
  [
    "fetch ends lines of a response's head at a bare LF",
    BUN_AND_DENO,
    ["RFC 9112 §2.2: a response's head that has a line with a bare LF gets 502"],
  ],
  [
    "Bun's fetch accepts responses that can be read in two ways",
    ON_BUN,
    ["corpus: answers that can be read in two ways"],
  ],
  [
    "fetch takes a connection's reset for the end of a body without a length",
    NODE_AND_BUN,
    ["a body until the connection's close that is reset never looks whole"],
  ],
  [
    "fetch does not tell a stale connection from others",
    FETCH,
    ["a PUT that is kept is sent again, byte for byte"],
  ],
  [
    "fetch does not tell a stale connection from others",
    ON_NODE,
    ["a kept connection that is closed as it is reused costs an idempotent request nothing"],
  ],
  [
    "the fetch of Bun and Deno sends requests again by itself",
    BUN_AND_DENO,
    ["an answer that has begun is never asked for again"],
  ],
  [
    "the fetch of Bun and Deno sends requests again by itself, on Deno POST, too",
    ON_DENO,
    ["a POST on such a connection is seen once at most"],
  ],
  [
    "Deno's fetch closes a connection after trailers",
    ON_DENO,
    ["a chunked body arrives whole, its extensions and trailers do no harm"],
  ],
  [
    "Bun's fetch takes the connection's end between two chunks for the end of the body",
    ON_BUN,
    ["a chunked body that breaks off fails for the client"],
  ],
  [
    "Bun.serve breaks off within the head where the body has failed by then",
    ON_BUN,
    [
      "a body that breaks off with its head, all in one packet, fails for the client",
      "a malformed chunk fails for the client",
    ],
  ],
];
