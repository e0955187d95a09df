/**
 * Request bytes that two parsers could read differently.
 *
 * `{id}` stands for the entry's number, so that the target of each request that reaches the upstream
 * shows which entry it came from. `may` lists the requests that may reach the upstream complete, each at most once:
 * all of them, some or none. A request for `/smuggled` must never reach it.
 */
export interface Entry {
  readonly name: string;
  readonly bytes: string;
  /** Requests as `METHOD /path body`, where the path lacks the entry's number, or as `METHOD *` for any path. */
  readonly may: readonly string[];
}

const hidden = "GET /{id}/smuggled HTTP/1.1\r\nHost: proxy.test\r\n\r\n";
/** Returns the length of a text after `{id}` is replaced by a number of three digits. */
const sizeOf = (text: string): number => text.replaceAll("{id}", "100").length;
const chunk = (text: string): string => `${sizeOf(text).toString(16)}\r\n${text}\r\n`;
const last = "0\r\n\r\n";

function get(path: string, ...lines: string[]): string {
  return `GET /{id}${path} HTTP/1.1\r\n${["Host: proxy.test", ...lines].join("\r\n")}\r\n\r\n`;
}

function post(lines: string[], body: string, path = "/"): string {
  return get(path, ...lines).replace("GET", "POST") + body;
}

/** Splits values that are written in one string, such as `"a|b"`. */
function list(...values: string[]): string[] {
  return values.join("|").split("|");
}

function entries(group: string, named: Record<string, [bytes: string, ...may: string[]]>): Entry[] {
  return Object.entries(named).map(([name, [bytes, ...may]]) => ({
    name: `${group}: ${name}`,
    bytes,
    may,
  }));
}

function each(
  group: string,
  values: string[],
  make: (value: string) => [bytes: string, ...may: string[]],
): Entry[] {
  return entries(
    group,
    Object.fromEntries(values.map((value) => [JSON.stringify(value), make(value)])),
  );
}

/** Valid entries: all of `may` must arrive, because otherwise the other entries would prove nothing. */
const plain: Entry[] = entries("plain", {
  GET: [get("/"), "GET /"],
  "a sized POST": [post(["Content-Length: 5"], "hello"), "POST / hello"],
  "a chunked POST": [post(["Transfer-Encoding: chunked"], chunk("hello") + last), "POST / hello"],
  "white space around values": [
    post(["X-A:\t b \t", "Content-Length:\t 5 "], "hello"),
    "POST / hello",
  ],
});

// ── Content-Length that two parsers could read differently ──

const lengths: Entry[] = [
  ...each(
    "content-length",
    list(
      "5 5|5, 6|+5|-5|0x5|5e0|5.0|5;||five|\v5|5\0|\xb5",
      "99999999999999999999|18446744073709551621|-18446744073709551611|1,000",
    ),
    (value) => [post([`Content-Length: ${value}`], `hello${hidden}`)],
  ),
  // A server may treat a list of equal numbers as that number (RFC 9110 §8.6).
  ...each("content-length", ["5, 5", "5,5", "05", "0000000005"], (value) => [
    post([`Content-Length: ${value}`], "hello"),
    "POST / hello",
  ]),
  ...entries("content-length", {
    "more than will ever come": [post(["Content-Length: 4294967301"], `hello${hidden}`)],
    "two that differ": [post(["Content-Length: 5", "content-length: 60"], `hello${hidden}`)],
    "two alike": [post(["Content-Length: 5", "Content-Length: 5"], "hello"), "POST / hello"],
    "its alias": [post(["Content-Length: 5", "Content_Length: 500"], "hello"), "POST / hello"],
    "space before the colon": [post(["Content-Length : 5"], `hello${hidden}`)],
    "folded into the line before": [post(["X-A: b", " Content-Length: 5"], ""), "POST /"],
    "folded value": [post(["Content-Length:", " 5"], "hello"), "POST / hello"],
    "a GET's body is no request": [
      `${get("/", `Content-Length: ${sizeOf(hidden)}`)}${hidden}${get("/2")}`,
      `GET / ${hidden}`,
      "GET /2",
    ],
  }),
];

// ── a transfer coding that only one of two parsers sees ──

const unclear = list(
  "Transfer-Encoding : chunked|Transfer-Encoding\t: chunked|Transfer-Encoding: xchunked",
  "Transfer-Encoding: chunked, identity|Transfer-Encoding: identity, chunked",
  'Transfer-Encoding: chunked, chunked|Transfer-Encoding: "chunked"',
  "Transfer-Encoding: 'chunked'|Transfer-Encoding: chunked;q=1|Transfer-Encoding: ,",
  "Transfer-Encoding: x\r\nTransfer-Encoding: chunked",
  "Transfer-Encoding: chunked\r\nTransfer-Encoding: x|Transfer-Encoding: \vchunked",
  "Transfer-Encoding: \fchunked|Transfer-Encoding: chunked\0|Transfer-Encoding: cow",
  "Transfer-Encoding: chunked\xa0|Transfer-Encoding: |X-A: b\rTransfer-Encoding: chunked",
  "X-A: b\r\n Transfer-Encoding: chunked|Transfer-\xe9ncoding: chunked",
  "\0Transfer-Encoding: chunked|Transfer-Encoding:\0chunked|Transfer-Encoding: c hunked",
);
const clear = list(
  "Transfer-Encoding: chunked|Transfer-Encoding:chunked|TRANSFER-ENCODING: CHUNKED",
  "Transfer-Encoding:\tchunked|Transfer-Encoding: chunked\t |transfer-encoding: ChunKed",
  "Transfer-Encoding:\r\n chunked|X-A: b\nTransfer-Encoding: chunked",
  "Connection: Transfer-Encoding\r\nTransfer-Encoding: chunked",
);
/** Whether a server may read `Transfer-Encoding` here as a part of the value of `X-A`, so that there is no transfer coding. */
const isValue = (line: string): boolean => line.startsWith("X-A: b\r");
/** A body that is empty if it is read as chunks. The bytes behind the last chunk are then another request. */
const zero = `0\r\n\r\n${hidden}`;

const codings: Entry[] = [
  ...each("CL.TE", unclear, (line) => [
    post([`Content-Length: ${sizeOf(zero)}`, line], zero),
    isValue(line) ? `POST / ${zero}` : "POST /",
  ]),
  ...each("TE alone", unclear, (line) => [
    post([line], chunk(hidden) + last),
    isValue(line) ? "POST /" : `POST / ${hidden}`,
  ]),
  // Such a request must be refused: the proxy does not forward Transfer-Encoding, so the body would arrive coded
  // without a field that says so (RFC 9112 §6.1).
  ...each("TE alone", list("gzip, chunked|gzip|chunked, gzip|deflate,chunked"), (coding) => [
    post([`Transfer-Encoding: ${coding}`], chunk("hello") + last),
  ]),
  // Transfer-Encoding overrides Content-Length, and the connection is closed after the response (RFC 9112 §6.1, §6.3).
  ...each("CL.TE", clear, (line) => [
    post([`Content-Length: ${sizeOf(zero)}`, line], zero),
    "POST /",
  ]),
  ...each("TE.CL", clear, (line) => [
    post([line, "Content-Length: 4"], chunk(hidden) + last),
    `POST / ${hidden}`,
  ]),
  ...entries("codings", {
    "its alias": [
      post([`Content-Length: ${sizeOf(zero)}`, "Transfer_Encoding: chunked"], zero),
      `POST / ${zero}`,
    ],
    "a GET in chunks": [
      get("/", "Transfer-Encoding: chunked") + chunk(hidden) + last + get("/2"),
      `GET / ${hidden}`,
      "GET /2",
    ],
    "with HTTP/1.0": [
      post(["Transfer-Encoding: chunked"], chunk(hidden) + last).replace("HTTP/1.1", "HTTP/1.0"),
      `POST / ${hidden}`,
    ],
  }),
];

// ── chunk sizes, chunk extensions and the line ends of chunks ──

const chunks: Entry[] = [
  ...each(
    "chunk size",
    list(
      "-5|+5|0x5|5g||G|\t5|5.0|5,|5_|1e1x|\xb5|5\0|5\v",
      "10000000000000005|ffffffffffffffff5|-fffffffffffffffb|7fffffffffffffff|5 5",
    ),
    (size) => [post(["Transfer-Encoding: chunked"], `${size}\r\nhello\r\n${last}${hidden}`)],
  ),
  ...each(
    "chunk size",
    ["05", "5 ", "5;", "5;a", "5;a=b", '5 ; a="b"', "005;a;b=c", "5;\0"],
    (size) => [
      post(["Transfer-Encoding: chunked"], `${size}\r\nhello\r\n${last}${get("/2")}`),
      "POST / hello",
      "GET /2",
    ],
  ),
  ...each(
    "chunk lines",
    list(
      "5\nhello\r\n|5\rhello\r\n|5\r\nhello\n|5\r\nhello\r|5\r\nhelloXX",
      "5;a=\nhello\r\n|5;\rb\r\nhello\r\n|5;a\n\r\nhello\r\n|5\r\nhello!\r\n",
      "5\r\nhell\r\n|5\r\n\r\nhello\r\n",
    ),
    (line) => [post(["Transfer-Encoding: chunked"], `${line}${last}${hidden}`)],
  ),
  ...each("last chunk", ["-0\r\n\r\n", "0x0\r\n\r\n", "0\rX\r\n\r\n", "\r\n\r\n"], (end) => [
    post(["Transfer-Encoding: chunked"], `${chunk("hello")}${end}${hidden}`),
  ]),
  ...each("last chunk", ["00\r\n\r\n", "0;a=b\r\n\r\n", "000000\r\n\r\n"], (end) => [
    post(["Transfer-Encoding: chunked"], `${chunk("hello")}${end}${get("/2")}`),
    "POST / hello",
    "GET /2",
  ]),
  ...each(
    "trailers",
    ["X-Smuggled: 1", "Content-Length: 500", "Transfer-Encoding: x", "Host: evil.test"],
    (line) => [
      post(["Transfer-Encoding: chunked"], `${chunk("hello")}0\r\n${line}\r\n\r\n${get("/2")}`),
      "POST / hello",
      "GET /2",
    ],
  ),
];

export const framings: Entry[] = [...plain, ...lengths, ...codings, ...chunks];
export { each, entries, get, hidden, list, post };
