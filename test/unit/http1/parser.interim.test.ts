/** The parser passes on interim responses, and limits their number and length. */
import { expect, test } from "vitest";
import { ResponseParser } from "../../../src/http1/parser.ts";
import { portableCodec } from "./_codec.ts";
import { parse, type Parsed, piecesOf } from "./_parsed.ts";

const sized = "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n";

const whole = (text: string): Parsed => parse(piecesOf(text));

test("at most 64 interim responses of 64 KiB in total are accepted", () => {
  const refused = { heads: [], error: "http_protocol_error" };
  const hint = "HTTP/1.1 103 \r\n\r\n";
  for (const cuts of [[], [1, 7, 64 * hint.length - 1], [64 * hint.length]]) {
    const taken = parse(piecesOf(`${hint.repeat(64)}${sized}hello`, ...cuts));
    expect(taken).toMatchObject({ body: "hello", end: "clean", error: undefined });
    expect(parse(piecesOf(`${hint.repeat(65)}${sized}hello`, ...cuts))).toMatchObject(refused);
  }
  const long = `HTTP/1.1 103 \r\nLink: ${"x".repeat(16_000)}\r\n\r\n`;
  const rest = 65_536 - 4 * long.length;
  const last = `HTTP/1.1 103 ${"x".repeat(rest - hint.length)}\r\n\r\n`;
  expect(whole(`${long.repeat(4)}${last}${sized}hello`)).toMatchObject({ body: "hello" });
  expect(whole(`${long.repeat(4)}${last.replace("x", "xx")}${sized}`)).toMatchObject(refused);
});

test("each interim response is passed on before the head of the final one", () => {
  const heads: unknown[] = [];
  const parser = new ResponseParser(
    {
      onInterim: (status, headers) => void heads.push(status, headers),
      onHead: ({ status }) => void heads.push(status),
      onChunk() {},
      onEnd() {},
    },
    portableCodec,
  );
  parser.expectResponse("GET");
  for (const piece of piecesOf(
    `HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 \r\nLink: a\r\nLink: b\r\n\r\n${sized}hello`,
    3,
    30,
  )) {
    parser.feed(piece);
  }
  expect(heads).toEqual([100, [], 103, ["Link", "a", "Link", "b"], 200]);
});

test("the limit of interim responses applies to each request separately", () => {
  const heads: number[] = [];
  const parser = new ResponseParser(
    {
      onHead: ({ status }) => void heads.push(status),
      onChunk() {},
      onEnd() {},
    },
    portableCodec,
  );
  const response = `${"HTTP/1.1 103 \r\n\r\n".repeat(40)}${sized}hello`;
  for (let i = 0; i < 3; i++) {
    parser.expectResponse("GET");
    for (const piece of piecesOf(response)) parser.feed(piece);
  }
  expect(heads).toEqual([200, 200, 200]);
});
