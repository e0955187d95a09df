/**
 * Every function that processes bytes from the network must take linear time. A field of 16 KB that took
 * quadratic time would block the event loop, and so all other requests, for hundreds of milliseconds.
 */
import { expect, test } from "vitest";
import { parseHead, ResponseParser } from "../../../src/http1/parser.ts";
import { portableCodec } from "../http1/_codec.ts";
import { compileCookieRewrite } from "../../../src/response/cookies.ts";
import { isEventStream, type HeaderList } from "../../../src/fields/headers.ts";
import { nextHop, compileRedirectPolicy } from "../../../src/exchange/redirect.ts";
import { cleanResponse, cleanResponseHeaders } from "../../../src/response/clean.ts";
import { compileResponseRewrite } from "../../../src/response/rewrite.ts";
import type { UpstreamRequest } from "../../../src/transport/message.ts";
import {
  attempt,
  each,
  growthOf,
  hop,
  LINEAR,
  lines,
  replyOf,
  type Sized,
  spaces,
  type Texts,
} from "./_growth.ts";

const responseHead = (field: string): unknown =>
  parseHead(`HTTP/1.1 200 OK\r\n${field}\r\n\r\n`, false);

function feed(text: string, pieceLength: number): unknown {
  const bytes = Buffer.from(text, "latin1");
  const parser = new ResponseParser({ onHead() {}, onChunk() {}, onEnd() {} }, portableCodec);
  parser.expectResponse("GET");
  for (let at = 0; at < bytes.length; at += pieceLength) {
    parser.feed(new Uint8Array(bytes.subarray(at, at + pieceLength)));
  }
  return parser;
}

const chunkedHead = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
const cookie = compileCookieRewrite("a", "/b") as (cookie: string) => string;
const cookieMap = compileCookieRewrite({ a: "b" }, { "/": "" }) as (cookie: string) => string;
const rewriteResponse = compileResponseRewrite(
  { locationRewrite: { "http://up.test/": "/" }, cookieDomainRewrite: "a" },
  "/prefix",
) as (headers: HeaderList, hop: UpstreamRequest, followed?: UpstreamRequest) => void;

const cookies: Texts = [
  ["a=b; path=", " ", 'x""'],
  ["a=b; path=/", " ", '""'],
  ['a=b; path="', " ", '""'],
  ["a=b; path=", '"'],
  ["a=b; path=x", ' "'],
  ["a=b;", " ", "path"],
  ["a=b; domain", " ", "=x"],
  ["a=b; domain=x", " \t", "y"],
  ["=", " ", '"'],
  ['a="', ';="'],
  ["", ";"],
  ["a", '=" '],
  ['a="b"', " ", "c"],
  ['a="', '" '],
  ["a=b", ";path=/x", ";"],
  ["a=b", '; domain="'],
];
const references: Texts = [
  ["", "/"],
  ["http:", "/"],
  ["", "\\/"],
  ["http://", "a"],
  ["http://up.test/base", "/.."],
  ["/base", "/%2e%2e"],
  ["http://up.test/", "?"],
  ["http://up.test:", "0", "80/"],
  ["/", "\u0080"],
  ["http://", "a.", "@up.test/"],
  ["", "#"],
];

const cases: [string, Sized][] = [
  ...each("Connection of a response", spaces, (text) => responseHead(`Connection: ${text}`)),
  ...each(
    "a head",
    [
      ["", "Connection: a\r\n", "X: y"],
      ["", "Transfer-Encoding: identity\r\n", "X: y"],
      ["", "X: y\r\n", "X: y"],
      ["", "X\r\n"],
      ["Keep-Alive: ", "timeout="],
      ["Keep-Alive: timeout=", "1", "x"],
      ["Content-Length: ", "1"],
      ["X:", " ", "y"],
      ["X:", "\r"],
    ],
    (text) => attempt(() => responseHead(text)),
  ),
  ...each("a status line", [["HTTP/1.1 200 ", " ", "\r\n\r\n"]], (text) => parseHead(text, false)),
  ...each(
    "chunks",
    [
      [chunkedHead, "1\r\na\r\n", "0\r\n\r\n"],
      [chunkedHead, "0"],
      [`${chunkedHead}1`, " ", "\r\n"],
      [`${chunkedHead}0\r\n`, "X: y\r\n", "\r\n"],
    ],
    (text) => attempt(() => feed(text, 65_536)),
  ),
  ...each("a body, a byte at a time", [[chunkedHead, "1\r\na\r\n"]], (text) => feed(text, 1)),
  ...each("a head, a byte at a time", [["HTTP/1.1 200 OK\r\n", "X: y\r\n"]], (text) =>
    attempt(() => feed(text, 1)),
  ),
  ...each("Connection, nominating", [["", "a,"]], (text) =>
    cleanResponseHeaders(replyOf(["Connection", text, ...lines(100, (i) => [`x${i}`, "y"])]), hop),
  ),
  ...each("Transfer-Encoding", [["chunked", " ", "x"]], (text) =>
    attempt(() => cleanResponseHeaders(replyOf(["Transfer-Encoding", text]), hop)),
  ),
  ...each("a reason phrase", [["", " ", "\u0100"]], (text) =>
    cleanResponse(replyOf([], text), "GET", hop),
  ),
  ...each("Set-Cookie", cookies, cookie),
  ...each("Set-Cookie, by a map", cookies, cookieMap),
  ...["Location", "Content-Location", "Refresh"].flatMap((name) =>
    each(name, references, (text) => {
      const value = name === "Refresh" ? `0; url=${text}` : text;
      rewriteResponse([name, value], hop);
      rewriteResponse([name, value], hop, hop);
    }),
  ),
  ...each(
    "Refresh",
    [
      ["5", " ", "x"],
      ["5;", " ", "url x"],
      ["5; url", " ", "="],
      ["", " ", "5"],
      ["5", ";"],
      ["", "."],
      ["5; url=", '"'],
    ],
    (text) => rewriteResponse(["Refresh", text], hop),
  ),
  ...each("Location, followed", references, (text) =>
    nextHop(hop, replyOf(["Location", text]), compileRedirectPolicy("any"), []),
  ),
  ...each("Content-Type", [["text/event-stream", " ", "x"]], (text) =>
    isEventStream(["Content-Type", text]),
  ),
];

test.each(cases)("the running time grows linearly with the input: %s", (_, make) => {
  expect(growthOf(make)).toBeLessThan(LINEAR);
});
