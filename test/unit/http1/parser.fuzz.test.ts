/** Random responses, split at random places: valid ones are read as generated, and any accepted bytes have only one meaning. */
import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { parseHead } from "../../../src/http1/parser.ts";
import { rfc } from "../../conformance/rfc.ts";
import { parse, piecesOf } from "./_parsed.ts";

const token = fc
  .stringMatching(/^[!#$%&'*+.^_`|~\w-]{1,12}$/)
  .filter((name) => !/^(?:connection|keep-alive|content-length|transfer-encoding)$/i.test(name));
const text = fc.stringMatching(
  /^(?:[!-~\u0080-\u00ff](?:[\t -~\u0080-\u00ff]{0,20}[!-~\u0080-\u00ff])?)?$/,
);
const space = fc.stringMatching(/^[\t ]{0,3}$/);
const field = fc.record({ name: token, value: text, before: space, after: space });
const bytes = fc.uint8Array({ maxLength: 300 }).map((each) => Buffer.from(each).toString("latin1"));
const chunkOf = fc.record({
  bytes: bytes.filter((each) => each !== ""),
  zeros: fc.nat(3),
  extension: fc.constantFrom("", ";a", ' ;b="c"'),
});
const cuts = fc.array(fc.nat(4000), { maxLength: 12 });

const response = fc.record({
  status: fc.integer({ min: 200, max: 999 }).filter((status) => status !== 204 && status !== 304),
  reason: text,
  fields: fc.array(field, { maxLength: 8 }),
  framing: fc.constantFrom("sized", "chunked", "close"),
  chunks: fc.array(chunkOf, { maxLength: 5 }),
  trailers: fc.array(field, { maxLength: 3 }),
  interim: fc.array(fc.constantFrom(100, 102, 103, 199), { maxLength: 2 }),
});

type Response = typeof response extends fc.Arbitrary<infer T> ? T : never;

function linesOf(fields: Response["fields"]): string {
  return fields
    .map(({ name, value, before, after }) => `${name}:${before}${value}${after}\r\n`)
    .join("");
}

function write({ status, reason, fields, framing, chunks, trailers, interim }: Response): string {
  const body = chunks.map((each) => each.bytes).join("");
  const framed = {
    sized: `Content-Length: ${body.length}\r\n`,
    chunked: "Transfer-Encoding: chunked\r\n",
    close: "",
  };
  const head = `HTTP/1.1 ${status} ${reason}\r\n${linesOf(fields)}${framed[framing]}\r\n`;
  const hints = interim.map((each) => `HTTP/1.1 ${each} \r\n${linesOf(fields)}\r\n`).join("");
  if (framing !== "chunked") return hints + head + body;
  const lines = chunks.map(
    (each) =>
      `${"0".repeat(each.zeros)}${each.bytes.length.toString(16)}${each.extension}\r\n${each.bytes}\r\n`,
  );
  return `${hints}${head}${lines.join("")}0\r\n${linesOf(trailers)}\r\n`;
}

test("the parser reads valid random responses as they were generated", () => {
  fc.assert(
    fc.property(response, cuts, (each, at) => {
      const bytesOf = write(each);
      const parsed = parse(piecesOf(bytesOf, ...at.map((cut) => Math.min(cut, bytesOf.length))), {
        closed: each.framing === "close",
      });
      expect(parsed.error).toBeUndefined();
      expect(parsed.body).toBe(each.chunks.map((chunk) => chunk.bytes).join(""));
      expect(parsed.end).toBe(each.framing === "close" ? "unclean" : "clean");
      const [head, ...more] = parsed.heads;
      expect(more).toEqual([]);
      expect(head).toMatchObject({ status: each.status, statusText: each.reason });
      const sent = each.fields.flatMap(({ name, value }) => [name, value]);
      expect(head?.headers.slice(0, sent.length)).toEqual(sent);
    }),
    { numRuns: 2000 },
  );
});

test("the previous head has no influence on how a head is parsed or refused", () => {
  const part = fc.constantFrom(
    "X",
    "X-A",
    "X-AB",
    "x-a",
    "Content-Length",
    "1",
    "",
    " ",
    ":",
    "a",
    "a b",
  );
  const line = fc.tuple(part, fc.constantFrom(":", ": ", " :", ""), part, fc.constantFrom("", " "));
  const lines = fc
    .array(line, { maxLength: 40 })
    .map((each) => each.map((parts) => parts.join("")));
  fc.assert(
    fc.property(fc.array(lines, { minLength: 2, maxLength: 6 }), (heads) => {
      const lastFields: string[] = [];
      const outcomeOf = (head: string, last?: string[]): unknown => {
        try {
          return parseHead(head, false, last);
        } catch (error) {
          return (error as Error).message;
        }
      };
      for (const each of heads) {
        const head = `HTTP/1.1 200 OK\r\n${each.map((one) => `${one}\r\n`).join("")}\r\n`;
        expect(outcomeOf(head, lastFields)).toEqual(outcomeOf(head));
      }
    }),
    { numRuns: 2000 },
  );
});

test("a connection persists according to the connection options, with any white space around them", () => {
  rfc("9112-9.3-persistence-rules");
  const scrap = fc.constantFrom("close", "Keep-Alive", ",", ",", " ", "\t", "x", "\u00a0");
  const lines = fc.array(
    fc.array(scrap, { maxLength: 8 }).map((each) => each.join("")),
    {
      maxLength: 3,
    },
  );
  fc.assert(
    fc.property(lines, fc.constantFrom("0", "1"), (values, minor) => {
      const fields = values.map((value) => `Connection: ${value}\r\n`).join("");
      const [head] = parse(piecesOf(`HTTP/1.${minor} 200 OK\r\n${fields}\r\n`)).heads;
      const options = values.join(",").toLowerCase().split(",");
      const has = (name: string): boolean =>
        options.some((option) => option.replaceAll(/^[\t ]+|[\t ]+$/g, "") === name);
      expect(head?.isPersistent).toBe(!has("close") && (minor === "1" || has("keep-alive")));
    }),
    { numRuns: 5000 },
  );
});

describe("parsing any bytes as a response", () => {
  /** Generates parts of a response, and bytes that are difficult for parsers. */
  const scrap = fc.oneof(
    fc.constantFrom(
      "HTTP/1.1 200 OK\r\n",
      "HTTP/1.0 200\r\n",
      "HTTP/1.1 100 \r\n\r\n",
      "Content-Length: 5\r\n",
    ),
    fc.constantFrom(
      "Transfer-Encoding: chunked\r\n",
      "Connection: close\r\n",
      "X-A: b\r\n",
      "hello",
      "0\r\n\r\n",
    ),
    fc.constantFrom("\r\n", "\r", "\n", "\0", " ", "\t", ":", ";", "5\r\n", "f", "\x80", "-1"),
    bytes,
  );
  const scraps = fc.array(scrap, { maxLength: 14 }).map((each) => each.join(""));
  const mutated = fc
    .tuple(
      response,
      fc.nat(2000),
      fc.constantFrom("", "\0", "\r", "\n", " ", ":", "\r\n", "5", ";"),
    )
    .map(([each, at, with_]) => {
      const whole = write(each);
      const place = at % whole.length;
      return whole.slice(0, place) + with_ + whole.slice(place + 1);
    });

  test("splitting the bytes does not change the result", () => {
    fc.assert(
      fc.property(
        fc.oneof(scraps, mutated),
        cuts,
        fc.constantFrom("GET", "HEAD"),
        (each, at, method) => {
          const whole = parse(piecesOf(each), { method, closed: true });
          const cut = parse(piecesOf(each, ...at.map((place) => Math.min(place, each.length))), {
            method,
            closed: true,
          });
          const { end: first, ...one } = whole;
          const { end: second, ...other } = cut;
          expect(other).toEqual(one);
          // If the split is after the end of the response, the connection counts as clean until the excess bytes
          // arrive.
          expect(second === "open").toBe(first === "open");
        },
      ),
      { numRuns: 5000 },
    );
  });

  test("an accepted response has only one meaning", () => {
    fc.assert(
      fc.property(fc.oneof(scraps, mutated), (each) => {
        for (const { headers, statusText, length } of parse(piecesOf(each)).heads) {
          for (let i = 0; i < headers.length; i += 2) {
            expect(headers[i]).toMatch(/^[!#$%&'*+.^_`|~\w-]+$/);
            expect(headers[i + 1]).toMatch(
              /^(?:[!-~\u0080-\u00ff](?:[\t -~\u0080-\u00ff]*[!-~\u0080-\u00ff])?)?$/,
            );
          }
          expect(statusText).toMatch(/^[\t -~\u0080-\u00ff]*$/);
          const named = headers.filter((_, i) => i % 2 === 0).map((name) => name.toLowerCase());
          const framing = named.filter(
            (name) => name === "content-length" || name === "transfer-encoding",
          );
          if (length !== 0) expect(framing.length).toBeLessThanOrEqual(1);
        }
      }),
      { numRuns: 3000 },
    );
  });
});
