/** The part of the corpus about request heads: request lines, header fields, versions and sizes. */
import { each, entries, get, hidden, list, post, type Entry } from "./corpus.ts";

// ── lines ──

const lines: Entry[] = [
  ...each(
    "a field line",
    list(
      "X-A : b|X A: b|X\tA: b|: b|X-A|X\0A: b|X-\xe9: b|(X): b|X-A\x7f: b",
      "X-A: b\0c|X-A: b\x01|X-A: b\x7f|X-A: b\rX-Smuggled: c|X-A\r: b|X-A: b\r\r",
      "X-A: b\r\n X-Smuggled: c|X-A: b\r\n\tX-Smuggled: c|X-A\nX-Smuggled: c|=: b",
      '"X": b|X-A;b: c|[X]: b|X-A: b\n\r|\x80: b|X-A: b\x08c',
    ),
    // A server may repair some of these heads. A request that arrives must be well-formed, without the hidden field.
    (line) => [get("/", line), "GET /"],
  ),
  ...entries("line ends", {
    "bare LF throughout": ["GET /{id}/ HTTP/1.1\nHost: proxy.test\n\n", "GET /"],
    "bare LF at the end": ["GET /{id}/ HTTP/1.1\r\nHost: proxy.test\r\n\n", "GET /"],
    "LF, CRLF at the end": ["GET /{id}/ HTTP/1.1\r\nHost: proxy.test\n\r\n", "GET /"],
    "bare CR throughout": ["GET /{id}/ HTTP/1.1\rHost: proxy.test\r\r"],
    "CR CR LF": ["GET /{id}/ HTTP/1.1\r\r\nHost: proxy.test\r\r\n\r\n", "GET /"],
    "bare LF before another request": [
      `POST /{id}/ HTTP/1.1\r\nHost: proxy.test\r\nContent-Length: 0\r\nX-A: b\n\n${get("/2")}`,
      "POST /",
      "GET /2",
    ],
    "a first line that is folded": ["GET /{id}/ HTTP/1.1\r\n Host: proxy.test\r\n\r\n"],
    "a first line that folds Host": [
      "GET /{id}/ HTTP/1.1\r\n X-Smuggled: b\r\nHost: proxy.test\r\n\r\n",
      "GET /",
    ],
  }),
  ...each("before the request", ["\r\n", "\r\n\r\n\r\n", "\n", "\r\n\n", "\r\r"], (before) => [
    before + get("/"),
    "GET /",
  ]),
  ...each("before the request", [" ", "\0", "\xef\xbb\xbf", "\t", "x\r\n"], (before) => [
    before + get("/"),
  ]),
];

// ── request lines ──

const starts: Entry[] = [
  ...each(
    "request line",
    list(
      "GET  /{id}/ HTTP/1.1|GET\t/{id}/\tHTTP/1.1|GET /{id}/  HTTP/1.1|GET /{id}/ HTTP/1.1 ",
      "GET /{id}/ HTTP/1.2|GET /{id}/ http/1.1|GET /{id}/ HTTP/1.1x|GET /{id}/ HTTP/01.1",
      "GET /{id}/ HTTP/1.10|GET /{id}/ HTTP/0.9|GET /{id}/ HTTP/2.0|GET /{id}/ HTTP/11",
      "GET /{id}/ HTTP/-1.1|GET /{id}/ HTTP/1,1|GET /{id}/ |GET /{id}/|GET/{id}/ HTTP/1.1",
    ),
    // A server may treat several spaces as one (RFC 9112 §3), and any 1.x version as 1.1 (RFC 9110 §2.5).
    (line) => [`${line}\r\nHost: proxy.test\r\n\r\n`, "GET /"],
  ),
  ...each(
    "method",
    ["G ET", "GE\0T", "G(T", "", "G\xe9T", "GET:", "G\rET", "G\nET", '"GET"', "GET,POST"],
    (method) => [get("/").replace("GET", () => method)],
  ),
  ...each(
    "target",
    list(
      "/{id}/ /{id}/smuggled|/{id}/\0|/{id}/\r|/{id}/\n|/{id}/\x01|/{id}/\t",
      "/{id}/\rHost:evil.test|/{id}/\x7f|/{id}/a\vb",
    ),
    (target) => [get("/").replace("/{id}/", () => target), "GET *"],
  ),
  ...each(
    "target",
    list(
      "/{id}/%0d%0aX-Smuggled:%201|/{id}/a#b|http://evil.test/{id}/|/{id}/\xe9\xff",
      "http://proxy.test:80/{id}/?a=%00|/{id}/?\xe9|/{id}/%00|/{id}/\\other",
      "HTTPS://u:p@evil.test/{id}/|http:/{id}/|http://[::1/{id}/|//evil.test/{id}/",
    ),
    (target) => [get("/").replace("/{id}/", () => target), "GET *"],
  ),
  ...entries("other protocols", {
    "HTTP/0.9": ["GET /{id}/\r\n"],
    "HTTP/0.9 with fields": ["GET /{id}/\r\nHost: proxy.test\r\n\r\n", "GET /"],
    "HTTP/2": [`PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0${hidden}`],
    TLS: [`\x16\x03\x01\x02\0\x01\0\x01\xfc\x03\x03${hidden}`],
    SSH: [`SSH-2.0-OpenSSH_9.9\r\n${hidden}`],
    "HTTP/1.0 without Host": ["GET /{id}/ HTTP/1.0\r\n\r\n", "GET /"],
    "HTTP/1.0, kept alive": [
      `GET /{id}/ HTTP/1.0\r\nHost: proxy.test\r\nConnection: keep-alive\r\n\r\n${get("/2")}`,
      "GET /",
      "GET /2",
    ],
    // A refused CONNECT opens no tunnel, so the bytes that follow it are the next request.
    "CONNECT with authority": [
      `CONNECT evil.test:443 HTTP/1.1\r\nHost: evil.test\r\n\r\n${get("/2")}`,
      "GET /2",
    ],
    "CONNECT with a path": [
      `CONNECT /{id}/ HTTP/1.1\r\nHost: proxy.test\r\n\r\n${get("/2")}`,
      "GET /2",
    ],
    "no target": ["GET HTTP/1.1\r\nHost: proxy.test\r\n\r\n"],
  }),
];

// ── Host ──

const hosts: Entry[] = [
  ...each(
    "Host",
    list("a\r\nHost: b|a\r\nhost: a|a b|a,b|a/b|a?b|a#b|u@a|a\\b|a\tb", "a\0b|a\r\nHost : b"),
    (host) => [get("/").replace("proxy.test", () => host)],
  ),
  ...each(
    "Host",
    ["", "a:", "a:b:c", "[::1", "a:99999", "\x80", "%", "<a>", "a..b", "-"],
    (host) => [get("/").replace("proxy.test", () => host), "GET /"],
  ),
];

// ── sizes ──

const big = (size: number): string => "x".repeat(size);

const sizes: Entry[] = entries("size", {
  "a field of 12 KiB": [get("/", `X-A: ${big(12_288)}`), "GET /"],
  "a field of 100 KiB": [get("/", `X-A: ${big(100_000)}`), "GET /"],
  "a field of 2 MiB": [get("/", `X-A: ${big(2 * 1024 * 1024)}`), "GET /"],
  "10 000 fields": [get("/", ...Array<string>(10_000).fill("X-A: b")), "GET /"],
  "a name of 100 KiB": [get("/", `${big(100_000)}: b`), "GET /"],
  "a path of 100 KiB": [get(`/${big(100_000)}`), "GET *"],
  "a method of 100 KiB": [get("/").replace("GET", big(100_000).toUpperCase())],
  "a chunk extension of 1 MiB": [
    post(["Transfer-Encoding: chunked"], `5;${big(1024 * 1024)}\r\nhello\r\n0\r\n\r\n`),
    "POST / hello",
  ],
  "a chunk size of 100 KiB": [
    post(["Transfer-Encoding: chunked"], `${"0".repeat(100_000)}5\r\nhello\r\n0\r\n\r\n`),
    "POST / hello",
  ],
  "a trailer of 1 MiB": [
    post(["Transfer-Encoding: chunked"], `5\r\nhello\r\n0\r\nX-A: ${big(1024 * 1024)}\r\n\r\n`),
    "POST / hello",
  ],
});

// ── several requests on one connection ──

const pipelines: Entry[] = entries("pipelined", {
  "sized, chunked and none": [
    post(["Content-Length: 5"], "hello") +
      get("/2") +
      post(["Transfer-Encoding: chunked"], "5\r\nthird\r\n0\r\n\r\n", "/3") +
      get("/4"),
    "POST / hello",
    "GET /2",
    "POST /3 third",
    "GET /4",
  ],
  "50 at once": [
    Array.from({ length: 50 }, (_, count) => get(`/${count}`)).join(""),
    ...Array.from({ length: 50 }, (_, count) => `GET /${count}`),
  ],
  "the second is malformed": [get("/") + get("/2", "X A: b") + hidden, "GET /"],
  "the second has two lengths": [
    get("/") + post(["Content-Length: 1", "Content-Length: 60"], hidden, "/2"),
    "GET /",
  ],
  "after a close": [get("/", "Connection: close") + hidden, "GET /"],
  "empty lines in between": [`${get("/")}\r\n\r\n${get("/2")}`, "GET /", "GET /2"],
  "after Upgrade": [
    get("/", "Connection: Upgrade", "Upgrade: websocket") + get("/2"),
    "GET /",
    "GET /2",
  ],
  "after Upgrade: h2c": [
    get("/", "Connection: Upgrade, HTTP2-Settings", "Upgrade: h2c", "HTTP2-Settings: AA") +
      get("/2"),
    "GET /",
    "GET /2",
  ],
  "after Expect": [
    post(["Expect: 100-continue", "Content-Length: 5"], "hello") + get("/2"),
    "POST / hello",
    "GET /2",
  ],
  "after an unknown Expect": [
    post(["Expect: 200-ok", "Content-Length: 5"], "hello") + get("/2"),
    "POST / hello",
    "GET /2",
  ],
});

export const heads: Entry[] = [...lines, ...starts, ...hosts, ...sizes, ...pipelines];
