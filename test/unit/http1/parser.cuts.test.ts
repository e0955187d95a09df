/** The parser reads the same response at any split of its bytes. */
import { describe, expect, test } from "vitest";
import { answers } from "../../helpers/corpus.answers.ts";
import { parse, type Parsed, piecesOf } from "./_parsed.ts";

const ok = "HTTP/1.1 200 OK\r\n";
const chunked = `${ok}Transfer-Encoding: chunked\r\n\r\n`;
const sized = `${ok}Content-Length: 5\r\n\r\n`;

describe("a response split anywhere, or fed byte by byte, is parsed the same way:", () => {
  const texts: [name: string, bytes: string][] = [
    ["a sized body", `${sized}hello`],
    ["chunks and trailers", `${chunked}5;a=b\r\nhello\r\n1\r\n!\r\n0\r\nX-A: b\r\n\r\n`],
    ["interim responses", `HTTP/1.1 100 \r\n\r\nHTTP/1.1 103 X\r\nA: b\r\n\r\n${sized}hello`],
    ["bytes behind it", `${sized}hello${ok}`],
    ...answers.map(({ name, bytes }): [string, string] => [name, bytes]),
  ];
  test.each(texts)("%s", (_, text) => {
    const expected = parse(piecesOf(text), { closed: true });
    // At a split behind the end of the response, the bytes that follow have not arrived yet, so compare only
    // whether `end` is open.
    const seen = ({ end, ...rest }: Parsed): object => ({ ...rest, ended: end !== "open" });
    for (let cut = 1; cut < text.length; cut++) {
      expect(seen(parse(piecesOf(text, cut), { closed: true })), `${cut}`).toEqual(seen(expected));
    }
    const bytes = Array.from({ length: text.length }, (_each, at) => at);
    expect(seen(parse(piecesOf(text, ...bytes), { closed: true }))).toEqual(seen(expected));
  });
});

test("an ambiguous response is refused, or parsed in one of the allowed ways", () => {
  for (const { name, bytes, may } of answers) {
    const { body, end, error } = parse(piecesOf(bytes), { closed: true });
    const isWhole = error === undefined && end !== "open";
    if (name.startsWith("plain"))
      expect({ name, isWhole, body }).toMatchObject({ isWhole, body: may[0] });
    else if (isWhole) expect(may, name).toContain(body);
  }
});
