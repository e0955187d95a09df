/** The client's parser of responses: what it accepts, and what it refuses. */
import { describe, expect, test } from "vitest";
import { rfc } from "../../conformance/rfc.ts";
import { list } from "../../helpers/corpus.ts";
import { parseHead, ResponseParser } from "../../../src/http1/parser.ts";
import { portableCodec } from "./_codec.ts";
import { parse, type Parsed, piecesOf } from "./_parsed.ts";

const ok = "HTTP/1.1 200 OK\r\n";
const chunked = `${ok}Transfer-Encoding: chunked\r\n\r\n`;
const sized = `${ok}Content-Length: 5\r\n\r\n`;

function whole(text: string, method = "GET"): Parsed {
  return parse(piecesOf(text), { method });
}

function fieldsOf(text: string): string[] | undefined {
  return whole(text).heads[0]?.headers;
}

describe("a response head", () => {
  test.each(["SSH-2.0", "H\0", "HTTP/2"])("is refused at the first wrong byte: %j", (text) => {
    // No bytes follow: a server of another protocol may wait for the client's bytes.
    for (let cut = 1; cut <= text.length; cut++) {
      expect(parse(piecesOf(text, cut)).error, `split at ${cut}`).toBe("http_protocol_error");
    }
    expect(parse(piecesOf("HTTP/1.", 1, 4)).error).toBeUndefined();
  });

  test("has a status, a reason and fields", () => {
    const head = "HTTP/1.1 404 Not \xe9 Found\r\nX-A:b\r\nx-a: \t c d\t \r\nX-E:\r\n\r\n";
    expect(whole(head).heads).toEqual([
      {
        status: 404,
        statusText: "Not \xe9 Found",
        headers: ["X-A", "b", "x-a", "c d", "X-E", ""],
        length: -2,
        isPersistent: true,
        keepAliveTimeout: Infinity,
      },
    ]);
  });

  test("reuses the strings of the previous head, up to a number of fields and of bytes", () => {
    const lastFields: string[] = [];
    const fields = Array.from({ length: 40 }, (_, i) => `X-${i}: a long value, ${i}\r\n`).join("");
    parseHead(`${ok}X-Long: ${"x".repeat(3000)}\r\n${fields}\r\n`, false, lastFields);
    expect(lastFields).toEqual([]);
    const { headers } = parseHead(`${ok}${fields}\r\n`, false, lastFields);
    expect(lastFields).toEqual(headers.slice(0, 64));
    parseHead(`${ok}X-0: another\r\nX-2: a long value, 1\r\n\r\n`, false, lastFields);
    expect(lastFields.slice(0, 6)).toEqual([
      "X-0",
      "another",
      "X-2",
      headers[3],
      "X-2",
      headers[5],
    ]);
    expect(headers.slice(0, 4)).toEqual(["X-0", "a long value, 0", "X-1", "a long value, 1"]);
  });

  test.each(["HTTP/1.1 200", "HTTP/1.1 200 "])("may have no reason phrase: %j", (line) => {
    expect(whole(`${line}\r\n\r\n`).heads[0]).toMatchObject({ status: 200, statusText: "" });
  });

  test("is decoded as ISO-8859-1, not as windows-1252", () => {
    expect(fieldsOf(`${ok}X-A: \x80\x9f\xff\r\n\r\n`)).toEqual(["X-A", "\x80\x9f\xff"]);
  });

  test.each(
    list(
      "HTTP/1.1 099 X|HTTP/1.1 000 X|HTTP/1.1 20x|HTTP/1.1200 OK|http/1.1 200 OK",
      "HTTP/2.0 200 OK|HTTP/1.2 200 OK|HTTP/1.1\t200 OK|HTTP/1.1  200 OK||ICY 200",
    ),
  )("is refused for its status line: %j", (line) => {
    expect(whole(`${line}\r\n\r\n`)).toMatchObject({ heads: [], error: "http_protocol_error" });
  });

  test.each(
    list(
      ' X-A: b|\tX-A: b|X-A : b|X-A\t: b|: b|X-A|X A: b|X-\xe9: b|"X": b|X-A: b\r\n c',
      "X-A: b\0|X-A: b\x01|X-A: b\x7f|X-A: b\rc: d|X-A: b\nc: d|X-A: b\r\r|X-A: b\r",
      "\0: b|(X): b",
    ),
  )("is refused for its field line: %j", (line) => {
    const text = `${ok}${line}\r\nContent-Length: 0\r\n\r\n`;
    expect(whole(text)).toMatchObject({ heads: [], error: "http_protocol_error" });
  });

  test.each(["\n", "\n\n", "\r\n\n", "\n\r\n"])("with a bare line feed is refused: %j", (end) => {
    const text = `HTTP/1.1 200 OK${end}Content-Length: 0${end}`;
    expect(whole(text)).toMatchObject({ heads: [], error: "http_protocol_error" });
  });

  test("may have up to 16 KiB", () => {
    rfc("9110-2.3-own-lengths");
    const head = (length: number): string => {
      const rest = length - `${ok}X-A: \r\nContent-Length: 0\r\n\r\n`.length;
      return `${ok}X-A: ${"x".repeat(rest)}\r\nContent-Length: 0\r\n\r\n`;
    };
    const overflow = { heads: [], error: "http_response_header_section_size" };
    for (const cuts of [[], [1], [100, 16_383], [16_384]]) {
      expect(parse(piecesOf(head(16_384), ...cuts))).toMatchObject({ end: "clean" });
      expect(parse(piecesOf(head(16_385), ...cuts))).toMatchObject(overflow);
    }
    expect(whole(head(16_385).slice(0, -1))).toMatchObject(overflow);
    // The error comes as soon as the limit is reached, not at the end of the head.
    expect(whole(`${ok}X-A: ${"x".repeat(20_000)}`)).toMatchObject(overflow);
  });

  test("of an interim response is skipped, but an unrequested 101 is refused", () => {
    const hints = "HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n";
    const once = whole(`${hints}HTTP/1.1 100 Continue\r\n\r\n${hints}${sized}hello`);
    expect(once).toMatchObject({ body: "hello", end: "clean", error: undefined });
    expect(once.heads).toHaveLength(1);
    const upgrade = "HTTP/1.1 101 Switching Protocols\r\nUpgrade: h2c\r\n\r\n";
    expect(whole(upgrade)).toMatchObject({ heads: [], error: "http_protocol_error" });
  });
});

describe("the framing of a response", () => {
  test.each([
    ["a length", `${sized}hello`, "hello"],
    ["a length of 0", `${ok}Content-Length: 0\r\n\r\n`, ""],
    ["chunks", `${chunked}5\r\nhello\r\n0\r\n\r\n`, "hello"],
    [
      "chunks whose sizes have all allowed forms",
      `${chunked}0A\r\n0123456789\r\n1;a=b;c\r\n!\r\n00\r\n\r\n`,
      "0123456789!",
    ],
    ["trailers", `${chunked}5\r\nhello\r\n0\r\nX-A: b\r\nContent-Length: 9\r\n\r\n`, "hello"],
  ])("a response with %s is read, and is incomplete without its last byte", (_, text, body) => {
    expect(whole(text)).toMatchObject({ body, end: "clean", error: undefined });
    // Bytes after the response do not answer a request, so the connection must not be reused.
    expect(whole(`${text}H`)).toMatchObject({ body, end: "unclean", error: undefined });
    const less = parse(piecesOf(text.slice(0, -1)), { closed: true });
    expect(less).toMatchObject({ end: "open", error: "incomplete" });
  });

  test("a body without a length ends with the connection", () => {
    const parsed = parse(piecesOf(`${ok}\r\nhello`), { closed: true });
    expect(parsed).toMatchObject({ body: "hello", end: "unclean", error: undefined });
    expect(whole(`${ok}\r\nhello`)).toMatchObject({ body: "hello", end: "open" });
  });

  test.each([
    ["HEAD", `${ok}Content-Length: 5\r\n\r\n`],
    ["HEAD", chunked],
    ["HEAD", `${ok}\r\n`],
    ["GET", "HTTP/1.1 204 No Content\r\nContent-Length: 5\r\n\r\n"],
    ["GET", "HTTP/1.1 304 Not Modified\r\nContent-Length: 5\r\n\r\n"],
    ["GET", "HTTP/1.1 304 Not Modified\r\nTransfer-Encoding: chunked\r\n\r\n"],
  ])("a response to %s without a body ends with its head: %j", (method, text) => {
    expect(whole(text, method)).toMatchObject({ body: "", end: "clean" });
    expect(whole(`${text}hello`, method)).toMatchObject({ body: "", end: "unclean" });
  });

  test.each(
    list(
      "+5|-5|0x5|5, 5|5,5|5 5|5;||five|5.0|1e1|\u00b5|5\r\nContent-Length: 5",
      "5\r\ncontent-length: 6|9999999999999999",
    ),
  )("%j is refused as a Content-Length", (value) => {
    const parsed = whole(`${ok}Content-Length: ${value}\r\n\r\nhello`);
    expect(parsed).toMatchObject({ heads: [], body: "", error: "http_protocol_error" });
  });

  test.each(
    list(
      "gzip|gzip, chunked|chunked, gzip|chunked, chunked|xchunked|chunked;q=1|",
      "chunked\r\nTransfer-Encoding: chunked|x\r\nTransfer-Encoding: chunked",
    ),
  )("%j is refused as a Transfer-Encoding", (value) => {
    const parsed = whole(`${ok}Transfer-Encoding: ${value}\r\n\r\n5\r\nhello\r\n0\r\n\r\n`);
    expect(parsed).toMatchObject({ heads: [], body: "", error: "http_response_transfer_coding" });
  });

  test.each(["chunked", "identity"])("Content-Length together with %s is refused", (coding) => {
    for (const lines of [
      [`Transfer-Encoding: ${coding}`, "Content-Length: 5"],
      ["content-length: 5", `transfer-encoding: ${coding}`],
    ]) {
      const parsed = whole(`${ok}${lines.join("\r\n")}\r\n\r\n5\r\nhello\r\n0\r\n\r\n`);
      expect(parsed).toMatchObject({ heads: [], error: "http_protocol_error" });
    }
  });

  test.each(
    list(
      "-5\r\nhello\r\n|+5\r\nhello\r\n|0x5\r\nhello\r\n|5g\r\nhello\r\n|\r\nhello\r\n",
      "5 5\r\nhello\r\n| 5\r\nhello\r\n|5,\r\nhello\r\n|5\nhello\r\n|5\rhello\r\n|5\rxhello\r\n",
      "5\r\nhelloXX|5\r\nhello\n|5\r\nhello\r\r\n|5;\rb\r\nhello\r\n|5;a=\nhello\r\n",
      "5;\0\r\nhello\r\n|10000000000000005\r\nhello\r\n|20000000000001\r\nhello\r\n",
      "ffffffffffffffff\r\nhello\r\n|5\r\nhell\r\n|5\r\nhello!\r\n|0\r\n X: y\r\n\r\n",
      "0\r\nX-A\r\n\r\n|0\r\n\n|0\r\nX-A: b\0\r\n\r\n|0\r\nX\r\r\n",
    ),
  )("the chunked body %j is refused", (lines) => {
    const parsed = whole(`${chunked}${lines}0\r\n\r\n`);
    expect(parsed).toMatchObject({ end: "open", error: "http_protocol_error" });
  });

  test("each digit of a chunk size counts, in upper and lower case, and after leading zeros", () => {
    const sizes = ["1", "9", "a", "F", "1f", "A0", "fF", "0b", "00000010", "0000000000c", "2b7"];
    for (const size of sizes) {
      const data = "x".repeat(Number.parseInt(size, 16));
      const text = `${chunked}${size}\r\n${data}\r\n0\r\n\r\n`;
      expect(whole(text)).toMatchObject({ body: data, end: "clean", error: undefined });
      const each = Array.from(text, (_, i) => i);
      expect(parse(piecesOf(text, ...each))).toMatchObject({ body: data, end: "clean" });
    }
  });

  test.each(list("@\r\n|:\r\n|G\r\n|`\r\n|/\r\n|0x\r\n|\xe1\r\n|1\xc6\r\n"))(
    "%j is refused as a chunk size",
    (line) => {
      const parsed = whole(`${chunked}${line}${"x".repeat(99)}`);
      expect(parsed).toMatchObject({ body: "", error: "http_protocol_error" });
    },
  );

  test("chunk extensions are limited per chunk and in total", () => {
    const chunk = (extension: number): string => `1;${"x".repeat(extension)}\r\n!\r\n`;
    expect(whole(`${chunked}${chunk(1000)}0\r\n\r\n`).end).toBe("clean");
    expect(whole(`${chunked}${chunk(1100)}0\r\n\r\n`).error).toBe("http_protocol_error");
    expect(whole(`${chunked}${chunk(1000).repeat(16)}0\r\n\r\n`).end).toBe("clean");
    expect(whole(`${chunked}${chunk(1000).repeat(17)}0\r\n\r\n`).error).toBe("http_protocol_error");
    expect(whole(`${chunked}0\r\n${"X-A: b\r\n".repeat(3000)}`).error).toBe("http_protocol_error");
  });
});

describe("the connection", () => {
  test.each([
    ["1.1", "", "clean"],
    ["1.1", "Connection: close", "unclean"],
    ["1.1", "Connection: x, CLOSE", "unclean"],
    ["1.1", "Connection: x\r\nconnection: close", "unclean"],
    ["1.1", "Connection: close\r\nconnection: x", "unclean"],
    ["1.1", "Connection: closed", "clean"],
    ["1.0", "", "unclean"],
    ["1.0", "Connection: Keep-Alive", "clean"],
    ["1.0", "Connection: keep-alive, close", "unclean"],
  ])(
    "after a response of HTTP/%s with %j is %s (clean: it can be reused)",
    (version, line, end) => {
      const head = `HTTP/${version} 200 OK\r\nContent-Length: 0\r\n${line && `${line}\r\n`}\r\n`;
      expect(whole(head).end).toBe(end);
    },
  );

  test("a chunked HTTP/1.0 response closes its connection", () => {
    rfc("9112-6.1-http10-response");
    const head = "HTTP/1.0 200 OK\r\nConnection: keep-alive\r\nTransfer-Encoding: chunked\r\n\r\n";
    expect(whole(`${head}5\r\nhello\r\n0\r\n\r\n`)).toMatchObject({
      body: "hello",
      end: "unclean",
    });
  });

  test.each([
    ["timeout=5", 5000],
    ["max=10, timeout=3", 3000],
    ["Timeout=0", 0],
    ["max=10", Infinity],
    ["timeout=x", Infinity],
  ])("may stay idle for the time of Keep-Alive: %s", (value, keepAliveTimeout) => {
    expect(whole(`${ok}Keep-Alive: ${value}\r\n\r\n`).heads[0]?.keepAliveTimeout).toBe(
      keepAliveTimeout,
    );
  });
});

test("the limits of chunk extensions apply to each response separately", () => {
  const ends: boolean[] = [];
  const parser = new ResponseParser(
    {
      onHead: () => {},
      onChunk: () => {},
      onEnd: (clean) => void ends.push(clean),
    },
    portableCodec,
  );
  for (let count = 0; count < 40; count++) {
    parser.expectResponse(count % 2 ? "GET" : "HEAD");
    const body = count % 2 ? `1;${"x".repeat(1000)}\r\n!\r\n0\r\n\r\n` : "";
    for (const piece of piecesOf(chunked + body, 3, 30)) parser.feed(piece);
  }
  expect(ends).toEqual(Array(40).fill(true));
});
