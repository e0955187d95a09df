/** Advisories about message framing: where one message ends and the next begins, in both directions. */
import { expect } from "vitest";
import { advisory } from "../conformance/advisory.ts";
import { handshake } from "../helpers/handshake.ts";
import type { Tools } from "./_suite.ts";
import { until } from "../helpers/wait.ts";
import { chunk, lastChunk, request, type Header } from "../helpers/wire.ts";

const CHUNKED: Header = ["Transfer-Encoding", "chunked"];
const HIDDEN = "GET /smuggled HTTP/1.1\r\nHost: internal\r\n\r\n";
const CHUNKED_HEAD = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
const TRAILER_LINES = ["GET /smuggled HTTP/1.1", "X-Sum", " X: y", "X y: z"];
const INVALID_LENGTHS = ["+5", "0x5", "5_0", "-0", "5e0", "\u00b5"];
/** Bytes after a response, which a client could take for the next response. */
const POISON = "HTTP/1.1 200 OK\r\nContent-Length: 8\r\n\r\npoisoned";

/** Sends bytes, half-closes the connection, and reads what comes back. */
async function pour(t: Tools, ...bytes: (string | Uint8Array)[]): Promise<string> {
  const client = await t.connect();
  client.send(...bytes);
  // A proxy may take the half-close for an abort, and cancel a request that it has accepted. So wait for an answer first.
  const isAnswered = (): boolean => client.socket.bytesRead > 0 || client.isClosed;
  await until(isAnswered, "an answer", 100).catch(() => {});
  client.finish();
  const answers = (await client.rest()).toString("latin1");
  await until(() => t.upstream.calls.every((call) => call.state !== "reading"), "whole or cut");
  return answers;
}

/** Sends a chunked POST with this body, and expects that no complete request has reached the upstream. */
async function expectNoRequest(t: Tools, body: string): Promise<void> {
  const what = JSON.stringify(body);
  const answers = await pour(t, request("POST", "/", [CHUNKED]), body);
  expect(answers, what).not.toMatch(/^HTTP\/1\.1 200/);
  const seen = t.upstream.calls.map(({ target, state }) => `${target} ${state}`);
  expect(
    seen.filter((each) => each !== "/ cut"),
    what,
  ).toEqual([]);
  await t.upstream.reset();
}

/**
 * Answers a GET with these bytes. Expects an error or a truncated response, and that the next response is not affected.
 */
async function expectNoResponse(t: Tools, bytes: string): Promise<void> {
  const what = JSON.stringify(bytes);
  t.upstream.script = (call) => {
    if (call.target === "/next") return call.reply(200, [], "next");
    call.write(bytes);
    // If the bytes end with `POISON`, keep the connection open, so that `POISON` could count as the next response.
    if (!bytes.endsWith(POISON)) call.close();
  };
  const client = await t.connect();
  client.send(request("GET", "/"));
  // If the body fails early, the server may close the connection without sending the head.
  const answer = await client.read().catch(() => undefined);
  if (answer?.cut === false) {
    expect(answer.status, what).toBeGreaterThanOrEqual(500);
    t.expectGatewayError(answer, 502);
  }
  const next = await t.ask(request("GET", "/next"));
  expect(next, what).toMatchObject({ status: 200, text: "next" });
  await t.upstream.reset();
}

/** Sends a request that the upstream answers with 200 and `Upgrade`. Then sends bytes, which must not pass through a tunnel. */
async function expectOrdinary(t: Tools, fields: Header[]): Promise<void> {
  const offer: Header[] = [
    ["Connection", "Upgrade"],
    ["Upgrade", "websocket"],
  ];
  t.upstream.script = (call) => call.reply(200, offer, "ordinary");
  const client = await t.connect();
  client.send(request("GET", "/", fields));
  const answer = await client.read();
  expect(answer).toMatchObject({ status: 200, text: "ordinary" });
  expect(answer.all("upgrade")).toEqual([]);
  client.send(HIDDEN);
  client.finish();
  await client.rest();
  // If the proxy's server keeps the connection, it parses the bytes as another request, which is forwarded like any other.
  for (const call of t.upstream.calls) expect(call.get("host")).toBe(t.upstream.authority);
}

export const advisedFraming = {
  async "CVE-2026-2835: an HTTP/1.0 request with Transfer-Encoding and Content-Length hides no second request"(
    t: Tools,
  ): Promise<void> {
    for (const fields of [
      `Transfer-Encoding: chunked\r\nContent-Length: ${5 + HIDDEN.length}`,
      `Content-Length: ${5 + HIDDEN.length}\r\nTransfer-Encoding: chunked`,
      `Connection: keep-alive\r\nContent-Length: 0\r\nTransfer-Encoding: chunked`,
    ]) {
      const head = `POST / HTTP/1.0\r\nHost: proxy.test\r\n${fields}\r\n\r\n`;
      const answers = await pour(t, head, `0\r\n\r\n${HIDDEN}`);
      expect(answers, fields).toMatch(/^(?:HTTP\/1\.[01] 400 |$)/);
      expect(
        t.upstream.calls.map((call) => call.target),
        fields,
      ).toEqual([]);
    }
  },

  async "CVE-2025-4366: a body that a hook leaves unread is not read as the next request"(
    t: Tools,
  ): Promise<void> {
    for (const framing of [["Content-Length", String(HIDDEN.length)], CHUNKED] as Header[]) {
      const body = framing === CHUNKED ? Buffer.concat([chunk(HIDDEN), lastChunk]) : HIDDEN;
      const client = await t.connect("guarded");
      client.send(request("POST", "/forbidden", [framing]), body);
      expect(await client.read()).toMatchObject({ status: 403, text: "forbidden" });
      client.send(request("GET", "/next"));
      // A server may close the connection after the first answer.
      const next = await client.read().catch(() => undefined);
      if (next) expect(next).toMatchObject({ status: 200, text: "" });
      const targets = t.upstream.calls.map((call) => call.target);
      expect(targets).toEqual(next ? ["/next"] : []);
      await t.upstream.reset();
    }
  },

  async "CVE-2024-23326: a 200 with Upgrade opens no tunnel"(t: Tools): Promise<void> {
    await expectOrdinary(t, handshake);
  },

  async "CVE-2024-23326: a 200 with an unsolicited Upgrade is an ordinary response"(
    t: Tools,
  ): Promise<void> {
    await expectOrdinary(t, []);
  },

  async "CVE-2026-42581: an HTTP/1.0 response with Transfer-Encoding and Content-Length is refused"(
    t: Tools,
  ): Promise<void> {
    for (const length of [0, 5, 20]) {
      await expectNoResponse(
        t,
        `HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\nContent-Length: ${length}\r\n` +
          `Connection: keep-alive\r\n\r\n5\r\nhello\r\n0\r\n\r\n${POISON}`,
      );
    }
  },

  async "CVE-2026-2332: a request with a line end in a quoted chunk extension is not accepted"(
    t: Tools,
  ): Promise<void> {
    for (const extension of [';a="\r\n"', ';a="b\r\nX: y"', ';a="\\\r\n"']) {
      await expectNoRequest(t, `5${extension}\r\nhello\r\n0\r\n\r\n${HIDDEN}`);
    }
  },

  async "a request with a quoted chunk extension without its closing quote is not accepted"(
    t: Tools,
  ): Promise<void> {
    advisory("CVE-2026-2332");
    await expectNoRequest(t, `5;a="\r\nhello\r\n0\r\n\r\n${HIDDEN}`);
  },

  async "CVE-2026-2332: a response with a line end in a quoted chunk extension is not accepted"(
    t: Tools,
  ): Promise<void> {
    for (const extension of [';a="\r\n"', ';a="b\r\nX: y"']) {
      await expectNoResponse(t, `${CHUNKED_HEAD}5${extension}\r\nhello\r\n0\r\n\r\n`);
    }
  },

  async "CVE-2025-22871, CVE-2025-55315: a bare LF does not end a chunk line of a request"(
    t: Tools,
  ): Promise<void> {
    for (const lines of ["5\n", "5;\n", "5;a=b\n", "5;a\nb\r\n", "5 \n"]) {
      await expectNoRequest(t, `${lines}hello\r\n0\r\n\r\n${HIDDEN}`);
    }
    for (const end of ["0\n\r\n", "0;a\n\r\n"]) {
      await expectNoRequest(t, `5\r\nhello\r\n${end}${HIDDEN}`);
    }
  },

  async "CVE-2025-22871, CVE-2025-55315: a bare LF does not end the trailer section of a request"(
    t: Tools,
  ): Promise<void> {
    await expectNoRequest(t, `5\r\nhello\r\n0\r\n\n${HIDDEN}`);
  },

  async "CVE-2025-22871, CVE-2025-55315: a bare LF does not end a chunk line of a response"(
    t: Tools,
  ): Promise<void> {
    for (const lines of ["5\n", "5;\n", "5;a=b\n", "5;a\nb\r\n"]) {
      await expectNoResponse(t, `${CHUNKED_HEAD}${lines}hello\r\n0\r\n\r\n`);
    }
  },

  async "CVE-2025-43859: a chunk of a request that does not end with CRLF is refused"(
    t: Tools,
  ): Promise<void> {
    for (const end of ["XX", "\n\n", "\r", "\n", "\r\r", "0\r\n"]) {
      await expectNoRequest(t, `5\r\nhello${end}0\r\n\r\n${HIDDEN}`);
    }
  },

  async "CVE-2025-43859: a chunk of a response that does not end with CRLF is refused"(
    t: Tools,
  ): Promise<void> {
    for (const end of ["XX", "\n\n", "\r", "\n"]) {
      await expectNoResponse(t, `${CHUNKED_HEAD}5\r\nhello${end}0\r\n\r\n${POISON}`);
    }
  },

  async "bun#29732: a chunked request without its last chunk is not complete"(
    t: Tools,
  ): Promise<void> {
    for (const end of ["", "0", "0\r", "00000", "0;a=b"]) {
      await expectNoRequest(t, `5\r\nhello\r\n${end}`);
    }
  },

  async "bun#29732: a chunked response without its last chunk is not complete"(
    t: Tools,
  ): Promise<void> {
    for (const end of ["", "0", "0\r", "00000"]) {
      await expectNoResponse(t, `${CHUNKED_HEAD}5\r\nhello\r\n${end}`);
    }
  },

  async "CVE-2026-54387: a list of transfer codings beside Content-Length hides no second request"(
    t: Tools,
  ): Promise<void> {
    const body = `0\r\n\r\n${HIDDEN}`;
    for (const codings of [
      "chunked,",
      "gzip, chunked",
      "chunked, chunked",
      ",chunked",
      "chunked\t,",
    ]) {
      const lines: Header[] = [
        ["Transfer-Encoding", codings],
        ["Content-Length", String(body.length)],
      ];
      for (const fields of [lines, lines.toReversed()]) {
        await pour(t, request("POST", "/", fields), body);
        const seen = t.upstream.calls.filter((call) => call.state === "complete");
        // A server that reads this list as chunked coding closes the connection after the request (RFC 9112 §6.3).
        expect(
          seen.map(({ target, text }) => `${target} ${text}`),
          codings,
        ).toEqual(seen.length === 0 ? [] : ["/ "]);
        await t.upstream.reset();
      }
    }
  },

  async "CVE-2023-38697: a length in a request with anything but digits is refused"(
    t: Tools,
  ): Promise<void> {
    for (const length of INVALID_LENGTHS) {
      const answers = await pour(t, request("POST", "/", [["Content-Length", length]]), "hello");
      expect(answers, length).toMatch(/^(?:HTTP\/1\.1 400 |$)/);
      expect(t.upstream.calls.filter((call) => call.state === "complete")).toEqual([]);
      await t.upstream.reset();
      await expectNoRequest(t, `${length}\r\nhello\r\n0\r\n\r\n`);
    }
  },

  async "CVE-2023-38697: a length in a response with anything but digits is refused"(
    t: Tools,
  ): Promise<void> {
    for (const length of INVALID_LENGTHS) {
      await expectNoResponse(t, `HTTP/1.1 200 OK\r\nContent-Length: ${length}\r\n\r\nhello`);
      await expectNoResponse(t, `${CHUNKED_HEAD}${length}\r\nhello\r\n0\r\n\r\n`);
    }
  },

  async "an invalid trailer line of a request is refused"(t: Tools): Promise<void> {
    for (const line of TRAILER_LINES) {
      await expectNoRequest(t, `5\r\nhello\r\n0\r\n${line}\r\n\r\n`);
    }
  },

  async "an invalid trailer line of a response is refused"(t: Tools): Promise<void> {
    for (const line of TRAILER_LINES) {
      await expectNoResponse(t, `${CHUNKED_HEAD}5\r\nhello\r\n0\r\n${line}\r\n\r\n`);
    }
  },

  async "CVE-2026-48931, GHSA-35p6-xmwp-9g52: a response on an idle connection answers no later request"(
    t: Tools,
  ): Promise<void> {
    t.upstream.script = (call) => {
      call.reply(200, [], call.target);
      // Send the bytes in the packet of the response, or later, when the connection is idle.
      if (call.target === "/with") call.write(POISON);
      if (call.target === "/later") setTimeout(() => call.write(POISON), 20);
    };
    // Repeat this, because it may depend on timing whether a pool notices the bytes before the next request.
    for (const path of [...Array.from({ length: 10 }, () => "/with"), "/later"]) {
      expect(await t.ask(request("GET", path))).toMatchObject({ status: 200, text: path });
      // A proxy closes this connection, or drops the bytes when it uses the connection again (RFC 9112 §9.2).
      if (path === "/later")
        await until(() => t.upstream.links.at(-1)?.isClosed === true, "its end", 3000).catch(
          () => {},
        );
      for (const next of ["/1", "/2", "/3"]) {
        expect(await t.ask(request("POST", next, [], "x"))).toMatchObject({
          status: 200,
          text: next,
        });
      }
    }
  },
};
