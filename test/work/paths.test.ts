/**
 * On every path through the proxy, fast or slow, the upstream and the client receive the same messages, apart from what
 * differs between servers (see `Seen`).
 */
import { connect as connectHttp2, type OutgoingHttpHeaders } from "node:http2";
import fc from "fast-check";
import { expect, test } from "vitest";
import { useApps } from "../helpers/apps.ts";
import type { Call } from "../helpers/link.ts";
import { within } from "../helpers/wait.ts";
import { changedWays, http2Ways, replacingWays, type Way, ways } from "./_ways.ts";
import { chunk, type Header, lastChunk, request, response } from "../helpers/wire.ts";

const apps = useApps();
const { upstream } = apps;

/** A request and the upstream's answer to it. */
interface Exchange {
  method: string;
  target: string;
  headers: Header[];
  body: Buffer | undefined;
  chunked: boolean;
  status: number;
  answerHeaders: Header[];
  answer: Buffer;
  framing: "length" | "chunked" | "close";
  /** Whether the upstream sends the chunks of the response with pauses. */
  slow: boolean;
}

/**
 * The message that one side received, without what differs between servers: the order and case of its fields, and `OWN`.
 */
interface Seen {
  start: string;
  headers: Record<string, string>;
  body: string;
}

const name = fc.constantFrom("X-A", "x-b", "Accept", "ACCEPT-ENCODING", "If-None-Match", "Cookie");
const value = fc.stringMatching(/^[!-+\--~]{1,12}$/);
const fields = fc
  .uniqueArray(fc.tuple(name, value), { selector: ([key]) => key.toLowerCase(), maxLength: 5 })
  .map((list) => list as Header[]);
const answerName = fc.constantFrom("X-A", "x-b", "ETag", "Cache-Control", "Content-Encoding");
const answerFields = fc
  .uniqueArray(fc.tuple(answerName, value), { selector: ([key]) => key.toLowerCase() })
  .map((list) => list as Header[]);
/** Generates bodies: empty, of some bytes, and larger than a buffer. */
const bytes = fc
  .tuple(fc.oneof(fc.constantFrom(0, 1), fc.nat(2000), fc.nat(200_000)), fc.nat(255))
  .map(([length, seed]) =>
    Buffer.from(Uint8Array.from({ length }, (_, i) => (i * 7 + seed) & 255)),
  );

const exchanges: fc.Arbitrary<Exchange> = fc
  .record({
    method: fc.constantFrom("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"),
    target: fc.stringMatching(/^\/[a-z0-9;,=+~-]{0,8}(\/[a-z]{0,3}%2F)?(\?[a-z=&%20]{0,8})?$/),
    headers: fields,
    body: fc.option(bytes, { nil: undefined }),
    chunked: fc.boolean(),
    status: fc.constantFrom(200, 201, 204, 206, 304, 404, 500),
    answerHeaders: answerFields,
    answer: bytes,
    framing: fc.constantFrom("length" as const, "chunked" as const, "close" as const),
    slow: fc.boolean(),
  })
  .map((each) => {
    const bodyless = /^(?:GET|HEAD|OPTIONS|DELETE)$/.test(each.method);
    return bodyless ? Object.assign({}, each, { body: undefined }) : each;
  })
  // Some servers refuse a "%" that does not begin a valid escape, before the proxy sees it.
  .filter(({ target }) => !/%(?![\da-f]{2})/i.test(target));

/** Answers as the exchange says, but without a body if the response cannot have one. */
async function answer(exchange: Exchange, call: Call): Promise<void> {
  const { status, answer: body, framing, slow } = exchange;
  await call.done;
  const headers: Header[] = [["Content-Type", "text/x-test"], ...exchange.answerHeaders];
  if (status === 204 || status === 304) return call.reply(status, headers, null);
  if (framing === "length") headers.push(["Content-Length", `${body.length}`]);
  else if (framing === "chunked") headers.push(["Transfer-Encoding", "chunked"]);
  else headers.push(["Connection", "close"]);
  const pieces: Buffer[] = [response(status, headers, null)];
  if (call.method !== "HEAD") {
    const half = body.length >> 1;
    for (const piece of [body.subarray(0, half), body.subarray(half)]) {
      if (piece.length > 0) pieces.push(framing === "chunked" ? chunk(piece) : piece);
    }
    if (framing === "chunked") pieces.push(lastChunk);
  }
  if (!slow) call.write(...pieces);
  else {
    for (const piece of pieces) {
      call.write(piece);
      await new Promise((resolve) => setTimeout(resolve, 1));
    }
  }
  if (framing === "close") call.close();
}

/** Fields that differ between servers: the framing of a body of unknown length, hop-by-hop fields, and Date. */
const OWN = new Set(["transfer-encoding", "connection", "keep-alive", "date"]);

function normalize(list: Iterable<readonly [string, string]>, sized: boolean): Seen["headers"] {
  const seen: Record<string, string> = {};
  for (const [key, text] of list) {
    const lower = key.toLowerCase();
    if (OWN.has(lower) || (lower === "content-length" && !sized)) continue;
    seen[lower] = lower in seen ? `${seen[lower]}, ${text}` : text;
  }
  return Object.fromEntries(Object.entries(seen).toSorted(([a], [b]) => (a < b ? -1 : 1)));
}

/** Returns the request as the upstream received it. */
function atUpstream(call: Call, { body, chunked }: Exchange): Seen {
  return {
    start: `${call.method} ${call.target}`,
    headers: normalize(call.headers, body !== undefined && body.length > 0 && !chunked),
    body: `${call.length} ${call.sha256}`,
  };
}

function hasLength({ status, framing, method }: Exchange): boolean {
  return framing === "length" && status !== 204 && status !== 304 && method !== "HEAD";
}

async function askHttp1(port: number, exchange: Exchange): Promise<Seen> {
  const { method, target, headers, body, chunked } = exchange;
  const framed: Header[] =
    body !== undefined && chunked ? [...headers, ["Transfer-Encoding", "chunked"]] : headers;
  const sent =
    body !== undefined && chunked
      ? Buffer.concat([...(body.length > 0 ? [chunk(body)] : []), lastChunk])
      : body;
  const seen = await apps.ask(port, request(method, target, framed, sent));
  expect(seen.cut).toBe(false);
  return {
    start: `${seen.status}`,
    headers: normalize(seen.headers, hasLength(exchange)),
    body: seen.body.toString("base64"),
  };
}

async function askHttp2(port: number, exchange: Exchange): Promise<Seen> {
  const { method, target, headers, body, chunked } = exchange;
  const session = connectHttp2(`http://127.0.0.1:${port}`);
  try {
    const fieldsOf: OutgoingHttpHeaders = {
      ":method": method,
      ":path": target,
      ":authority": "proxy.test",
      ...Object.fromEntries(headers.map(([key, text]) => [key.toLowerCase(), text])),
      ...(body !== undefined && !chunked && { "content-length": body.length }),
    };
    const stream = session.request(fieldsOf, { endStream: body === undefined });
    if (body !== undefined) stream.end(body);
    const chunks: Buffer[] = [];
    let head: [string, string][] = [];
    stream.on("response", (seen) => {
      head = Object.entries(seen).map(([key, text]) => [key, String(text)]);
    });
    stream.on("data", (data: Buffer) => void chunks.push(data));
    await within(
      new Promise((resolve, reject) => stream.on("end", resolve).on("error", reject)),
      "the stream's end",
    );
    const status = head.find(([key]) => key === ":status")?.[1] ?? "";
    return {
      start: status,
      headers: normalize(
        head.filter(([key]) => !key.startsWith(":")),
        hasLength(exchange),
      ),
      body: Buffer.concat(chunks).toString("base64"),
    };
  } finally {
    session.close();
  }
}

type Ask = (port: number, exchange: Exchange) => Promise<Seen>;

async function start(which: Record<string, Way>, ask: Ask): Promise<[string, Ask, number][]> {
  const started: [string, Ask, number][] = [];
  for (const [title, way] of Object.entries(which)) started.push([title, ask, await way(apps)]);
  return started;
}

async function expectSame(all: [string, Ask, number][]): Promise<void> {
  const property = fc.asyncProperty(exchanges, async (exchange) => {
    upstream.script = (call) => answer(exchange, call);
    let first: { up: Seen; down: Seen } | undefined;
    for (const [title, ask, port] of all) {
      upstream.calls.length = 0;
      const down = await ask(port, exchange);
      const up = atUpstream(await upstream.call(), exchange);
      first ??= { up, down };
      expect({ up, down }, title).toEqual(first);
      // The client must have received the bytes that the upstream sent.
      const { method, status } = exchange;
      const whole = method === "HEAD" || status === 204 || status === 304 ? "" : exchange.answer;
      expect(down.body, title).toBe(Buffer.from(whole).toString("base64"));
    }
  });
  await fc.assert(property, { numRuns: 60, endOnFailure: true });
}

test("all servers and entries send the same messages, over HTTP/1 and HTTP/2, even with constructed Requests", async () => {
  await expectSame([...(await start(ways, askHttp1)), ...(await start(http2Ways, askHttp2))]);
});

test("the messages are the same if srvx lacks some of its undocumented properties", async () => {
  await expectSame(await start(changedWays, askHttp1));
});

test("the messages are the same for all servers in a process whose global `Response` was replaced", async () => {
  await expectSame(await start(replacingWays, askHttp1));
});
