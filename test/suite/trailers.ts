/** Trailer fields (RFC 9110 §6.5) in both directions: which of them arrive, and which are dropped. */
import { expect } from "vitest";
import { rfc } from "../conformance/rfc.ts";
import type { Answer } from "../helpers/client.ts";
import type { Call } from "../helpers/link.ts";
import type { Tools } from "./_suite.ts";
import { until } from "../helpers/wait.ts";
import { chunk, request, type Header } from "../helpers/wire.ts";

const CHUNKED: Header = ["Transfer-Encoding", "chunked"];

/** The last chunk and a trailer section. */
const section = (...lines: string[]): string =>
  `0\r\n${lines.map((line) => `${line}\r\n`).join("")}\r\n`;

/** Fields in the form in which they are compared: hosts may change the case of names. */
const lower = (fields: readonly Header[]): Header[] =>
  fields.map(([name, value]) => [name.toLowerCase(), value]);

/** The order of fields with different names has no meaning (RFC 9110 §5.3). */
const sorted = (fields: readonly Header[]): Header[] =>
  lower(fields).toSorted(([a], [b]) => a.localeCompare(b));

/** The names in the values of `Trailer`, in lower case and sorted. */
const namesIn = (values: readonly string[]): string[] =>
  values.flatMap((value) => value.toLowerCase().split(/, */)).toSorted();

const SUMS = ["X-Sum: 1", "Content-Digest: sha-256=:abc:", "X-Sum: 2"];
const SUMMED: Header[] = [
  ["x-sum", "1"],
  ["content-digest", "sha-256=:abc:"],
  ["x-sum", "2"],
];

/** Message framing in a trailer section, for which some servers refuse a request. */
const FRAMING = ["Transfer-Encoding: chunked", "Content-Length: 5", "Connection: close"];

/** Other trailer fields: fields that a trailer section must not have, and one field that it may have. */
const FORBIDDEN = [
  "Trailer: x-sum",
  "Host: evil.test",
  "Authorization: Basic 777",
  "Set-Cookie: a=777",
  "Cookie: a=777",
  "Content-Type: text/777",
  "Content-Encoding: gzip",
  "Cache-Control: max-age=777",
  "If-Match: 777",
  "X-Forwarded-For: 6.6.6.6",
  "X_Forwarded_Host: evil.test",
  "Forwarded: for=6.6.6.6",
  "X-Sum: 1",
];

/** Asks for a response whose trailers arrive with its head or, if `isLate`, after the client has received the first bytes. */
async function askWithTrailers(
  t: Tools,
  lines: string[],
  { isLate = false, head = "Trailer: X-Sum, Content-Digest\r\n", version = "1.1" } = {},
): Promise<Answer> {
  await t.upstream.reset();
  t.upstream.script = (call) => {
    call.write(`HTTP/1.1 200 OK\r\n${head}Transfer-Encoding: chunked\r\n\r\n`, chunk("hello"));
    if (!isLate) call.write(section(...lines));
  };
  const client = await t.connect();
  client.send(
    `GET / HTTP/${version}\r\nHost: proxy.test\r\nTE: trailers\r\nConnection: TE\r\n\r\n`,
  );
  const answering = client.read();
  const call = await t.upstream.call();
  if (isLate) {
    await until(() => client.socket.bytesRead > 0, "the first bytes");
    call.write(section(...lines));
  }
  const answer = await answering;
  expect(answer).toMatchObject({ status: 200, text: "hello", cut: false });
  return answer;
}

/** Sends a chunked request, and its trailers immediately or, if `isLate`, once the upstream has got the chunk. */
async function sendTrailers(
  t: Tools,
  lines: string[],
  { isLate = false, setup = "default", method = "POST", fields = [] as Header[] } = {},
): Promise<{ answer: Answer; call: Call | undefined }> {
  const client = await t.connect(setup as "default");
  client.send(request(method, "/", [CHUNKED, ...fields]), chunk("hello"));
  if (isLate) await t.unfinished();
  client.send(section(...lines));
  const answer = await client.read(method);
  return { answer, call: t.upstream.calls[0] };
}

export const trailers = {
  async "trailer fields of a response reach the client, and are announced"(
    t: Tools,
  ): Promise<void> {
    rfc("9110-6.6.2-trailer");
    for (const isLate of [false, true]) {
      const answer = await askWithTrailers(t, SUMS, { isLate });
      expect(sorted(answer.trailers), String(isLate)).toEqual(sorted(SUMMED));
      expect(namesIn(answer.all("trailer")), String(isLate)).toEqual(["content-digest", "x-sum"]);
    }
  },

  async "trailer fields of a response that does not announce them reach the client"(
    t: Tools,
  ): Promise<void> {
    for (const isLate of [false, true]) {
      const answer = await askWithTrailers(t, SUMS, { isLate, head: "" });
      expect(lower(answer.trailers), String(isLate)).toEqual(SUMMED);
    }
  },

  async "trailer fields that a response must not have are dropped"(t: Tools): Promise<void> {
    rfc("9110-6.5.1-trailers-sent");
    const head =
      "Connection: x-secret\r\nTrailer: x-sum, Set-Cookie\r\nTrailer: content-length\r\n";
    for (const isLate of [false, true]) {
      const answer = await askWithTrailers(t, [...FRAMING, ...FORBIDDEN, "X-Secret: 777"], {
        isLate,
        head,
      });
      expect(lower(answer.trailers).filter(([name]) => name !== "x-sum")).toEqual([]);
      expect(answer.all("trailer").filter((value) => value !== "x-sum")).toEqual([]);
      expect(answer.all("set-cookie")).toEqual([]);
    }
  },

  async "trailer fields are dropped for an HTTP/1.0 client and for HEAD, and the connection stays usable"(
    t: Tools,
  ): Promise<void> {
    const old = await askWithTrailers(t, SUMS, { version: "1.0" });
    expect(old.trailers).toEqual([]);
    expect(old.all("trailer")).toEqual([]);
    t.upstream.script = (call) =>
      call.write("HTTP/1.1 200 OK\r\nTrailer: X-Sum\r\nTransfer-Encoding: chunked\r\n\r\n");
    const client = await t.connect();
    client.send(request("HEAD", "/"));
    const head = await client.read("HEAD");
    expect(head).toMatchObject({ status: 200, length: 0 });
    t.upstream.script = (call) => call.reply(200, [["Trailer", "X-Sum"]], "next");
    client.send(request("GET", "/next"));
    // A body with Content-Length cannot have trailers, so none are announced.
    const next = await client.read();
    expect(next).toMatchObject({ status: 200, text: "next" });
    expect(next.all("trailer")).toEqual([]);
  },

  async "trailer fields of a request reach the upstream, and are announced"(
    t: Tools,
  ): Promise<void> {
    rfc("9110-6.6.2-trailer");
    for (const isLate of [false, true]) {
      await t.upstream.reset();
      const fields: Header[] = [["Trailer", "X-Sum, Content-Digest"]];
      const { answer, call } = await sendTrailers(t, SUMS, { isLate, fields });
      expect(answer).toMatchObject({ status: 200, text: "hello" });
      expect(sorted(call?.trailers ?? []), String(isLate)).toEqual(sorted(SUMMED));
      const announced = namesIn(call?.all("trailer") ?? []);
      expect(announced, String(isLate)).toEqual(["content-digest", "x-sum"]);
      expect(call?.framing.kind).toBe("chunked");
    }
  },

  async "names of trailer fields that a request must not have are not announced"(
    t: Tools,
  ): Promise<void> {
    const fields: Header[] = [["Trailer", "X-Sum, Content-Digest, Authorization"]];
    const { call } = await sendTrailers(t, SUMS, { fields });
    expect(call?.get("trailer")).toBe("X-Sum, Content-Digest");
  },

  async "trailer fields that a request must not have, or that the proxy sets, are dropped"(
    t: Tools,
  ): Promise<void> {
    rfc("9110-6.5.1-trailers-sent");
    const own = ["X-User: mallory", "X_User: mallory", "Remote-User: mallory", "X-Filtered: 777"];
    for (const isLate of [false, true]) {
      await t.upstream.reset();
      const fields: Header[] = [
        ["Connection", "x-secret"],
        ["Trailer", "X-User, x-sum"],
      ];
      const lines = [...FORBIDDEN, ...own, "X-Secret: 777"];
      const options = { isLate, setup: "identity", fields };
      const { answer, call } = await sendTrailers(t, lines, options);
      // Bun's server refuses every request with trailers.
      if (t.host.name.endsWith("bun") && answer.status === 400) continue;
      expect(answer).toMatchObject({ status: 200, text: "hello" });
      const forwarded = lower(call?.trailers ?? []);
      expect(forwarded.filter(([name]) => name !== "x-sum")).toEqual([]);
      expect(call?.all("trailer").filter((value) => value !== "x-sum")).toEqual([]);
      expect(call?.all("x-user")).toEqual(["alice"]);
      await t.upstream.reset();
      const framed = await sendTrailers(t, FRAMING, { isLate });
      expect([200, 400]).toContain(framed.answer.status);
      expect(framed.call?.trailers ?? []).toEqual([]);
    }
  },

  async "a request that is sent again keeps its trailer fields"(t: Tools): Promise<void> {
    t.upstream.script = async (call) => {
      await call.done;
      if (call.target === "/") call.reply(307, [["Location", "/there"]]);
      else call.reply(200, [], "there");
    };
    const { answer } = await sendTrailers(t, SUMS, { setup: "following" });
    expect(answer).toMatchObject({ status: 200, text: "there" });
    expect(t.upstream.calls.map((call) => lower(call.trailers))).toEqual([SUMMED, SUMMED]);
    expect(t.upstream.calls.map((call) => call.text)).toEqual(["hello", "hello"]);
  },

  async "RFC 9110 §10.1.4: TE reaches the upstream only if Connection names it there"(
    t: Tools,
  ): Promise<void> {
    rfc("9110-10.1.4-te", "9112-7.4-te-nominated");
    for (const fields of [[], [["Connection", "TE"]]] as Header[][]) {
      await t.ask(request("GET", "/", [["TE", "trailers"], ...fields]));
      const call = t.upstream.calls.at(-1);
      const options = call?.all("connection").join().toLowerCase().split(/, */);
      if (call?.get("te") !== undefined) expect(options).toContain("te");
    }
  },

  async "TE: trailers is forwarded, and Connection names TE"(t: Tools): Promise<void> {
    await t.ask(
      request("GET", "/", [
        ["TE", "deflate;q=0.5, trailers"],
        ["Connection", "TE"],
      ]),
    );
    const [call] = t.upstream.calls;
    expect(call?.all("te")).toEqual(["trailers"]);
    const options = call?.all("connection").join().toLowerCase().split(/, */);
    expect(options).toContain("te");
  },

  async "TE is not forwarded if it does not contain trailers, or if the client uses HTTP/1.0"(
    t: Tools,
  ): Promise<void> {
    await t.ask(request("GET", "/", [["TE", "deflate, x-trailers, trailers-x"]]));
    await t.ask("GET / HTTP/1.0\r\nHost: proxy.test\r\nTE: trailers\r\nConnection: TE\r\n\r\n");
    expect(t.upstream.calls.map((call) => call.all("te"))).toEqual([[], []]);
  },

  async "hundreds of trailer fields of a response never reach the client"(t: Tools): Promise<void> {
    const lines = Array.from({ length: 200 }, (_, i) => `x-${i}: 1`);
    t.upstream.script = (call) => {
      call.write("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", chunk("hello"));
      call.write(section(...lines));
    };
    const client = await t.connect();
    client.send(request("GET", "/"));
    const answer = await client.read();
    // The response breaks off, unless the runtime's HTTP client has dropped the fields.
    expect(answer.trailers).toEqual([]);
    // The next request is served.
    t.upstream.script = (call) => call.reply(200, [], "next");
    expect(await t.ask(request("GET", "/"))).toMatchObject({ status: 200, text: "next" });
  },

  async "hundreds of trailer fields of a request never reach the upstream"(
    t: Tools,
  ): Promise<void> {
    const lines = Array.from({ length: 200 }, (_, i) => `x-${i}: 1`);
    const { answer, call } = await sendTrailers(t, lines, { isLate: true });
    // The request is refused, unless the server has dropped the fields.
    expect([200, 400, 431]).toContain(answer.status);
    await call?.done;
    expect(call?.trailers).toEqual([]);
  },
};
