/** Response bytes that two parsers could read differently. The upstream sends them and then closes the connection. */

export interface AnswerEntry {
  readonly name: string;
  readonly bytes: string;
  /** The bodies with which the response may be forwarded. Any other outcome must be a 502 or a truncated response. */
  readonly may: readonly string[];
}

const poison = "HTTP/1.1 200 OK\r\nContent-Length: 8\r\n\r\npoisoned";
const chunked = `5\r\nhello\r\n0\r\n\r\n`;

function head(...lines: string[]): string {
  return `HTTP/1.1 200 OK\r\n${lines.map((line) => `${line}\r\n`).join("")}\r\n`;
}

function list(...values: string[]): string[] {
  return values.join("|").split("|");
}

function each(
  group: string,
  values: string[],
  make: (value: string) => [bytes: string, ...may: string[]],
): AnswerEntry[] {
  return values.map((value) => {
    const [bytes, ...may] = make(value);
    return { name: `${group}: ${JSON.stringify(value)}`, bytes, may };
  });
}

export const answers: AnswerEntry[] = [
  // These responses are valid, so they must arrive at the client.
  ...each("plain", list("Content-Length: 5|Content-Length:\t5 |X-A:b"), (line) => [
    `${head(line)}hello`,
    "hello",
  ]),
  ...each("plain", list("chunked|ChunKed|\tchunked "), (value) => [
    `${head(`Transfer-Encoding: ${value}`)}${chunked}`,
    "hello",
  ]),
  ...each(
    "content-length",
    list("5 5|5, 6|+5|-5|0x5|5e0|5.0|5;|five|\v5|99999999999999999999|18446744073709551621"),
    (value) => [`${head(`Content-Length: ${value}`)}hello${poison}`],
  ),
  ...each("content-length", list("5, 5|5,5|05"), (value) => [
    `${head(`Content-Length: ${value}`)}hello`,
    "hello",
  ]),
  ...each("content-length", ["5\r\nContent-Length: 13", "13\r\ncontent-length: 5"], (value) => [
    `${head(`Content-Length: ${value}`)}hello${poison}`,
  ]),
  // The proxy supports no transfer coding but chunked, so it refuses these responses.
  ...each(
    "transfer-encoding",
    list("xchunked|chunked, gzip|gzip|cow|chunked;q=1|\vchunked"),
    (value) => [`${head(`Transfer-Encoding: ${value}`)}${chunked}`],
  ),
  // Transfer-Encoding overrides Content-Length, and the connection must not be reused (RFC 9112 §6.3).
  ...each("both", list("3|5|500|0"), (length) => [
    `${head("Transfer-Encoding: chunked", `Content-Length: ${length}`)}${chunked}${poison}`,
    "hello",
  ]),
  ...each(
    "chunk lines",
    list(
      "-5\r\nhello\r\n|+5\r\nhello\r\n|0x5\r\nhello\r\n|5g\r\nhello\r\n|\r\nhello\r\n|5\nhello\r\n",
      "10000000000000005\r\nhello\r\n|ffffffffffffffff5\r\nhello\r\n|5\r\nhelloXX|5\r\nhello\n",
      "5;a=\nhello\r\n|5;\rb\r\nhello\r\n|5\r\nhell\r\n|5 5\r\nhello\r\n",
    ),
    (lines) => [`${head("Transfer-Encoding: chunked")}${lines}0\r\n\r\n${poison}`],
  ),
  ...each("chunk lines", list("05\r\nhello\r\n|5;a=b\r\nhello\r\n|5 \r\nhello\r\n"), (lines) => [
    `${head("Transfer-Encoding: chunked")}${lines}0\r\n\r\n`,
    "hello",
  ]),
  ...each(
    "a field line",
    list(
      "X-A : b|X A: b|: b|X-A|X\0A: b|X-\xe9: b|(X): b|X-A: b\0c|X-A: b\x01c|X-A: b\x7fc",
      "X-A: b\rX-Smuggled: c|X-A\r: b|X-A: b\r\n X-Smuggled: c|X-A: b\n X-Smuggled: c|X-A: b\r\r",
      " X-Smuggled: c|X-A: b\nX-B: c|=: b",
    ),
    (line) => [`${head("Content-Length: 5", line)}hello`, "hello"],
  ),
  ...each("a field line", [" Content-Length: 5", "X-A: b\r\n Content-Length: 2"], (line) => [
    `${head(line, "Content-Length: 5")}hello`,
    "hello",
  ]),
  ...each(
    "status line",
    list(
      "HTTP/1.1 2000 OK|HTTP/1.1 20 OK|HTTP/1.1 2 00|HTTP/1.1 -200 OK|HTTP/1.1 0x200 OK|HTTP/1.1",
      "HTTP/9.9 200 OK|HTTQ/1.1 200 OK|GET / HTTP/1.1| HTTP/1.1 200 OK|\0HTTP/1.1 200 OK|",
    ),
    (line) => [`${line}\r\nContent-Length: 5\r\n\r\nhello`],
  ),
  // A proxy may refuse these unusual responses, or forward them with this body.
  ...each(
    "status line",
    list(
      "HTTP/1.1 200|HTTP/1.1 200 |HTTP/1.1 200 a\tb|HTTP/1.1 200 \xe9|HTTP/1.0 200 OK|HTTP/2.0 200 OK",
      "HTTP/1.1  200 OK|HTTP/1.1 200OK|http/1.1 200 OK|ICY 200 OK|HTTP/1.2 200 OK|\r\nHTTP/1.1 200 OK",
      "HTTP/1.1 200 a\0b|HTTP/1.1 200 a\rX-Smuggled: c|HTTP/1.1 200 OK\nX-A: b",
    ),
    (line) => [`${line}\r\nContent-Length: 5\r\n\r\nhello`, "hello"],
  ),
  ...each("line ends", ["\n", "\r", "\r\r\n"], (end) => [
    `HTTP/1.1 200 OK${end}Content-Length: 5${end}${end}hello`,
    "hello",
  ]),
];
