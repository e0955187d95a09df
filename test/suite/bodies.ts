/** Methods, and the framing of request bodies that reach the upstream. */
import { expect } from "vitest";
import type { Client } from "../helpers/client.ts";
import { digestOf, mebibyte, pour } from "../helpers/large.ts";
import { rfc } from "../conformance/rfc.ts";
import type { Tools } from "./_suite.ts";
import { echo } from "../helpers/upstream.ts";
import { until } from "../helpers/wait.ts";
import { chunk, type Header, lastChunk, request } from "../helpers/wire.ts";

async function expectMethod(t: Tools, method: string, body?: string): Promise<void> {
  const answer = await t.ask(request(method, `/${method}`, [], body));
  expect(answer, method).toMatchObject({ status: 200, text: body ?? "" });
  const call = t.upstream.calls.at(-1);
  expect(call, method).toMatchObject({ method, target: `/${method}`, text: body ?? "" });
}

/** Sends each chunk when the upstream has received the previous chunk. */
async function sendInSteps(
  t: Tools,
  client: Client,
  pieces: (string | Uint8Array)[],
  lengths: number[],
): Promise<void> {
  for (const [index, piece] of pieces.entries()) {
    client.send(piece);
    const call = await t.upstream.call();
    await until(() => call.length === lengths[index], `piece ${index} at the upstream`);
  }
}

export const bodies = {
  async "a request body is forwarded for each method that commonly has one"(
    t: Tools,
  ): Promise<void> {
    rfc("9112-6.3-length-known");
    for (const method of ["POST", "PUT", "PATCH", "DELETE", "OPTIONS", "PROPFIND", "REPORT"]) {
      await expectMethod(t, method, "a body");
      expect(t.upstream.calls.at(-1)?.framing, method).toEqual({ kind: "length", length: 6 });
    }
  },

  async "a byte stream that a hook sets as the request body reaches the upstream completely, even if it ends late"(
    t: Tools,
  ): Promise<void> {
    const answer = await t.ask(request("POST", "/", [], "its own"), "streaming");
    expect(answer).toMatchObject({ status: 200, text: "streamed by a hook" });
  },

  async "a QUERY request is forwarded with its body"(t: Tools): Promise<void> {
    await expectMethod(t, "QUERY", "a body");
  },

  async "a request without a body is forwarded without Content-Length and Transfer-Encoding"(
    t: Tools,
  ): Promise<void> {
    rfc("9110-8.6-request");
    for (const method of ["GET", "DELETE", "OPTIONS"]) {
      await expectMethod(t, method);
      expect(t.upstream.calls.at(-1)?.framing, method).toEqual({ kind: "none" });
    }
  },

  async "a bodyless request with a method that allows a body is forwarded without framing fields, or with content-length: 0"(
    t: Tools,
  ): Promise<void> {
    for (const method of ["PROPFIND", "MKCOL", "PURGE", "M-SEARCH", "LINK", "QUERY"]) {
      await expectMethod(t, method);
      const call = t.upstream.calls.at(-1);
      expect([[], ["0"]], method).toContainEqual(call?.all("content-length"));
      expect(call?.all("transfer-encoding"), method).toEqual([]);
    }
  },

  async "a method in lower case is forwarded unchanged, or refused"(t: Tools): Promise<void> {
    const answer = await t.ask(request("patch", "/"));
    if (answer.status === 200) expect(t.upstream.calls[0]?.method).toBe("patch");
    else expect([400, 501]).toContain(answer.status);
  },

  async "an empty POST is forwarded with content-length: 0"(t: Tools): Promise<void> {
    await expectMethod(t, "POST", "");
    expect(t.upstream.calls[0]?.all("content-length")).toEqual(["0"]);
  },

  async "a POST without framing is forwarded with content-length: 0"(t: Tools): Promise<void> {
    rfc("9110-8.6-request");
    await expectMethod(t, "POST");
    expect(t.upstream.calls[0]?.all("content-length")).toEqual(["0"]);
  },

  async "an empty chunked POST is forwarded with an empty body"(t: Tools): Promise<void> {
    const client = await t.connect();
    client.send(request("POST", "/", [["Transfer-Encoding", "chunked"]]), lastChunk);
    expect(await client.read()).toMatchObject({ status: 200, text: "" });
    expect(t.upstream.calls[0]).toMatchObject({ length: 0, state: "complete" });
  },

  async "a DELETE request is forwarded with its chunked body"(t: Tools): Promise<void> {
    const client = await t.connect();
    client.send(
      request("DELETE", "/", [["Transfer-Encoding", "chunked"]]),
      chunk("a body"),
      lastChunk,
    );
    expect(await client.read()).toMatchObject({ status: 200, text: "a body" });
  },

  async "a chunked upload is forwarded chunk by chunk"(t: Tools): Promise<void> {
    rfc("9112-6.1-chunked-once");
    const client = await t.connect();
    const head = request("POST", "/", [["Transfer-Encoding", "chunked"]]);
    await sendInSteps(
      t,
      client,
      [Buffer.concat([head, chunk("first ")]), chunk("second ")],
      [6, 13],
    );
    client.send(chunk("third"), lastChunk);
    expect(await client.read()).toMatchObject({ status: 200, text: "first second third" });
    expect(t.upstream.calls[0]?.framing).toEqual({ kind: "chunked" });
  },

  async "an upload with Content-Length is forwarded chunk by chunk with the same Content-Length"(
    t: Tools,
  ): Promise<void> {
    const client = await t.connect();
    const head = request("PUT", "/", [["Content-Length", "18"]]);
    await sendInSteps(
      t,
      client,
      [Buffer.concat([head, Buffer.from("first ")]), "second "],
      [6, 13],
    );
    client.send("third");
    expect(await client.read()).toMatchObject({ status: 200, text: "first second third" });
    expect(t.upstream.calls[0]?.all("content-length")).toEqual(["18"]);
  },

  async "an upload is forwarded completely if its first byte arrives after the request head"(
    t: Tools,
  ): Promise<void> {
    const client = await t.connect();
    client.send(request("POST", "/", [["Content-Length", "5"]]));
    const other = await t.connect();
    other.send(request("GET", "/meanwhile"));
    await other.read();
    client.send("hello");
    expect(await client.read()).toMatchObject({ status: 200, text: "hello" });
  },

  async "an upload's request head is forwarded before its body arrives"(t: Tools): Promise<void> {
    const client = await t.connect();
    client.send(request("POST", "/", [["Content-Length", "500000"]]));
    await until(() => t.upstream.calls.length === 1, "the head at the upstream");
  },

  async "a response to an upload that the client has not finished reaches the client"(
    t: Tools,
  ): Promise<void> {
    t.upstream.script = (call) => call.reply(401, [], "not before you log in");
    const client = await t.connect();
    client.send(request("POST", "/", [["Content-Length", "500000"]]));
    expect(await client.read()).toMatchObject({ status: 401, text: "not before you log in" });
  },

  async "a request with chunk extensions and trailers is forwarded with its body"(
    t: Tools,
  ): Promise<void> {
    const client = await t.connect();
    const head = request("POST", "/", [
      ["Transfer-Encoding", "chunked"],
      ["Trailer", "X-Sum"],
    ]);
    client.send(
      head,
      '5;ext=1;q="a"\r\nhello\r\n0\r\nX-Sum: 1\r\nX-Forwarded-For: 6.6.6.6\r\n\r\n',
    );
    expect(await client.read()).toMatchObject({ status: 200, text: "hello" });
    const [call] = t.upstream.calls;
    expect(call?.text).toBe("hello");
    expect(call?.all("x-forwarded-for")).toEqual(["127.0.0.1"]);
    expect(call?.trailers.filter(([name]) => !/^x-sum$/i.test(name))).toEqual([]);
  },

  async "RFC 9110 §10.1.1: a client that expects 100 gets one or a final status, and then its body arrives"(
    t: Tools,
  ): Promise<void> {
    rfc("9110-10.1.1-answered", "9110-10.1.1-final");
    t.upstream.script = (call) => {
      if (call.get("expect")) call.write("HTTP/1.1 100 Continue\r\n\r\n");
      return echo(call);
    };
    const client = await t.connect();
    const fields: Header[] = [
      ["Expect", "100-continue"],
      ["Content-Length", "5"],
    ];
    client.send(request("POST", "/", fields));
    const sent = client.readHead();
    const isFinal = sent.then(() => true);
    await Promise.race([isFinal, until(() => client.interim > 0, "100 or a final status")]);
    if (client.interim > 0) client.send("hello");
    const answer = await client.readBody(await sent);
    if (!t.mayRefuse(answer)) expect(answer).toMatchObject({ status: 200, text: "hello" });
  },

  async "RFC 9110 §10.1.1: the head of a request with Expect: 100-continue is forwarded immediately, or answered by a final status"(
    t: Tools,
  ): Promise<void> {
    rfc("9110-10.1.1-proxy");
    const client = await t.connect();
    const fields: Header[] = [
      ["Expect", "100-continue"],
      ["Content-Length", "5"],
    ];
    client.send(request("POST", "/", fields));
    let status: number | undefined;
    void client.readHead().then(
      (head) => ({ status } = head),
      () => {},
    );
    const isSent = (): boolean => t.upstream.calls.length > 0;
    await until(() => isSent() || status !== undefined, "the head at the upstream, or an answer");
    // If the upstream has not got the head, the client must have got an error, and no 100 before it.
    if (!isSent()) expect([client.interim, (status ?? 0) >= 400]).toEqual([0, true]);
  },

  async "a client that waits for 100 Continue gets it, and the body arrives"(
    t: Tools,
  ): Promise<void> {
    rfc("9110-10.1.1-answered", "9110-10.1.1-final", "9110-10.1.1-sent");
    const client = await t.connect();
    client.send(
      request("POST", "/", [
        ["Expect", "100-continue"],
        ["Content-Length", "5"],
      ]),
    );
    // RFC 9110 §10.1.1: the client waits for the interim response before it sends the body.
    const sent = client.readHead();
    await until(() => client.interim > 0, "100 Continue");
    client.send("hello");
    const answer = await client.readBody(await sent);
    expect(answer).toMatchObject({ status: 200, text: "hello" });
    expect(answer.interim.map((head) => head.status)).toContain(100);
  },

  async "CVE-2024-24791: an early response to Expect: 100-continue does not disturb the next request"(
    t: Tools,
  ): Promise<void> {
    t.upstream.script = (call) => call.reply(200, [], call.target);
    for (const size of ["5", "500000"]) {
      const client = await t.connect();
      client.send(
        request("POST", "/early", [
          ["Expect", "100-continue"],
          ["Content-Length", size],
        ]),
      );
      const answer = client.read();
      // The server sends 100 when the body is read. If the upstream responds first, the body is not read.
      const isAnswered = answer.then(() => true);
      await Promise.race([isAnswered, until(() => client.interim > 0, "100 Continue")]);
      if (client.interim > 0) client.send("x");
      expect(await answer).toMatchObject({ status: 200, text: "/early" });
      const other = await t.connect();
      for (let count = 0; count < 3; count++) {
        other.send(request("GET", `/after-${count}`));
        expect(await other.read()).toMatchObject({ status: 200, text: `/after-${count}` });
      }
      client.leave("FIN");
    }
    expect(
      t.upstream.calls.filter((call) => call.method === "POST" && call.state === "complete"),
    ).toEqual([]);
  },

  async "a body of 8 MiB arrives unchanged in both directions, or is refused"(
    t: Tools,
  ): Promise<void> {
    const size = 8 * mebibyte;
    t.upstream.script = async (call) => {
      await call.done;
      if (call.method === "POST") return call.reply(200, [], `${call.state} ${call.sha256}`);
      call.write(`HTTP/1.1 200 OK\r\nContent-Length: ${size}\r\n\r\n`);
      await call.pour(size);
    };
    const client = await t.connect();
    client.send(request("POST", "/", [["Content-Length", String(size)]]));
    void pour(client.socket, size);
    const answer = await client.read();
    if (!t.mayRefuse(answer)) expect(answer.text).toBe(`complete ${digestOf(size)}`);
    const { cut, sha256 } = await t.ask(request("GET", "/"));
    expect({ cut, sha256 }).toEqual({ cut: false, sha256: digestOf(size) });
  },

  async "200 concurrent requests each get the response to their own body"(t: Tools): Promise<void> {
    rfc("9112-9.2-in-order");
    await Promise.all(
      Array.from({ length: 200 }, async (_, index) => {
        const client = await t.connect();
        const body = `${index}:`.repeat(1 + index * 40);
        client.send(request("POST", `/${index}`, [["X-Id", `${index}`]], body));
        const answer = await client.read();
        expect(answer.status).toBe(200);
        expect(answer.all("x-id")).toEqual([`${index}`]);
        expect(answer.text === body, `body of ${index}`).toBe(true);
      }),
    );
    expect(t.upstream.calls).toHaveLength(200);
  },
};
