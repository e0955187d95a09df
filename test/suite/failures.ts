/** Upstreams that are unreachable, truncate their responses, or do not speak HTTP. */
import { expect } from "vitest";
import type { Answer } from "../helpers/client.ts";
import { pour } from "../helpers/large.ts";
import { advisory } from "../conformance/advisory.ts";
import { rfc } from "../conformance/rfc.ts";
import type { Tools } from "./_suite.ts";
import type { Script } from "../helpers/upstream.ts";
import { pause } from "../helpers/wait.ts";
import { chunk, request } from "../helpers/wire.ts";

async function expectBad(t: Tools, script: Script, type?: RegExp): Promise<void> {
  t.upstream.script = script;
  for (const bytes of [request("GET", "/"), request("POST", "/", [], "body")]) {
    t.expectGatewayError(await t.ask(bytes), 502, type);
  }
  t.upstream.script = (call) => call.reply(200, [], "recovered");
  expect(await t.ask(request("GET", "/"))).toMatchObject({ status: 200, text: "recovered" });
}

async function expectBadBytes(t: Tools, each: Record<string, string>): Promise<void> {
  for (const [name, bytes] of Object.entries(each)) {
    t.upstream.script = (call) => {
      call.write(bytes);
      call.close();
    };
    const answer = await t.ask(request("GET", "/"));
    expect(answer.status, name).toBeGreaterThanOrEqual(500);
    t.expectGatewayError(answer, 502);
  }
}

async function expectCut(t: Tools, bytes: string, how: "FIN" | "RST"): Promise<void> {
  t.upstream.script = (call) => call.write(bytes);
  const client = await t.connect();
  client.send(request("GET", "/"));
  const head = client.readHead();
  // The head may fail before the test waits for it.
  head.catch(() => {});
  const call = await t.upstream.call();
  // A proxy may hold back the head until more of the body has arrived.
  await Promise.race([head, pause(3000)]);
  if (how === "RST") call.reset();
  else call.close();
  const answer = await client.readBody(await head);
  if (t.mayRefuse(answer)) return t.upstream.reset();
  expect(answer).toMatchObject({ status: 200, cut: true, text: halfOf(answer) });
  await t.upstream.reset();
}

/** Returns the part of "half" that may have arrived: a truncated body must not contain other text. */
function halfOf({ length }: Answer): string {
  return "half".slice(0, length);
}

export const failures = {
  async "h3 936f14ba: a refused upstream connection becomes a 502 that shows no address"(
    t: Tools,
  ): Promise<void> {
    for (const bytes of [request("GET", "/"), request("POST", "/", [], "body")]) {
      t.expectGatewayError(await t.ask(bytes, "refused"), 502, /connection_refused/);
    }
  },

  async "an upstream that closes the connection before it responds becomes 502"(
    t: Tools,
  ): Promise<void> {
    rfc("9110-15.5-explained", "9209-2-identifier");
    const type = /(connection_terminated|http_response_incomplete)/;
    await expectBad(t, (call) => call.close(), type);
    await expectBad(t, (call) => call.reset(), type);
  },

  async "an upstream that closes the connection within the response head becomes 502"(
    t: Tools,
  ): Promise<void> {
    await expectBad(t, (call) => {
      call.write("HTTP/1.1 200 OK\r\nX-A: ");
      call.close();
    });
  },

  async "a truncated response body with Content-Length fails for the client"(
    t: Tools,
  ): Promise<void> {
    rfc("9112-6.3-short-response", "9112-8-incomplete");
    const bytes = "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf";
    await expectCut(t, bytes, "FIN");
    await expectCut(t, bytes, "RST");
  },

  async "a truncated chunked response body fails for the client"(t: Tools): Promise<void> {
    rfc("9112-8-incomplete", "9112-8-chunked-cut");
    const head = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
    for (const bytes of [`${head}4\r\nhalf\r\n`, `${head}a\r\nhalf`]) {
      await expectCut(t, bytes, "FIN");
      await expectCut(t, bytes, "RST");
    }
  },

  async "a chunked response body without the CRLF after its last chunk fails for the client"(
    t: Tools,
  ): Promise<void> {
    advisory("bun#29732");
    const head = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
    await expectCut(t, `${head}4\r\nhalf\r\n0\r\n`, "FIN");
    await expectCut(t, `${head}4\r\nhalf\r\n0\r\n`, "RST");
  },

  async "a truncated response whose head and body arrive in one packet fails for the client"(
    t: Tools,
  ): Promise<void> {
    for (const bytes of [
      "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf",
      "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nhalf\r\n",
    ]) {
      t.upstream.script = (call) => {
        call.write(bytes);
        call.close();
      };
      // Repeat the request: whether the server has sent the head before the connection breaks depends on timing.
      for (let count = 0; count < 25; count++) {
        const answer = await t.ask(request("GET", "/"));
        if (answer.status === 200)
          expect(answer).toMatchObject({ cut: true, text: halfOf(answer) });
        else t.expectGatewayError(answer, 502);
      }
    }
  },

  async "a truncated gzip response body fails for the client"(t: Tools): Promise<void> {
    const head = "HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 100\r\n\r\nhalf";
    await expectCut(t, head, "FIN");
  },

  async "a response body with a malformed chunk fails for the client"(t: Tools): Promise<void> {
    for (const bad of ["zz\r\n", "5\r\nhello!!\r\n", "-5\r\nhello\r\n", "5\nhello\n"]) {
      t.upstream.script = (call) =>
        call.write("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", chunk("good"), bad);
      const answer = await t.ask(request("GET", "/"));
      if (answer.status === 200) expect(answer.cut, bad).toBe(true);
      else t.expectGatewayError(answer, 502);
    }
    expect((await t.ask(request("GET", "/"), "refused")).status).toBe(502);
  },

  async "an upstream response that is not HTTP becomes 502"(t: Tools): Promise<void> {
    rfc("9209-2.1.1-specific");
    await expectBad(
      t,
      (call) => call.write("\0\x01\x02 this is not HTTP\r\n\r\n"),
      /http_protocol_error/,
    );
    await expectBadBytes(t, {
      "HTTP/0.9": "<html>hello</html>",
      "another protocol": "SSH-2.0-OpenSSH_9.9\r\n",
      "HTTP/2 preface": "\0\0\x12\x04\0\0\0\0\0",
    });
  },

  async "a response with a malformed field becomes 502"(t: Tools): Promise<void> {
    await expectBadBytes(t, {
      "a name with a space": "HTTP/1.1 200 OK\r\nX A: b\r\nContent-Length: 0\r\n\r\n",
      "a NUL in a value": "HTTP/1.1 200 OK\r\nX-A: b\0c\r\nContent-Length: 0\r\n\r\n",
    });
  },

  async "RFC 9110 §5.5: a NUL in a response field becomes 502, or a space"(
    t: Tools,
  ): Promise<void> {
    rfc("9110-5.5-control");
    t.upstream.script = (call) =>
      call.write("HTTP/1.1 200 OK\r\nX-A: b\0c\r\nContent-Length: 0\r\n\r\n");
    const answer = await t.ask(request("GET", "/"));
    if (answer.status === 200) expect(answer.get("x-a")).toBe("b c");
    else t.expectGatewayError(answer, 502);
  },

  async "an upstream status of 000, under 100 or over 599 becomes 502"(t: Tools): Promise<void> {
    rfc("9110-15-invalid");
    const each = Object.fromEntries(
      ["000", "099", "600", "777", "999", "20", "2000", "abc", "-20"].map((status) => [
        status,
        `HTTP/1.1 ${status} Odd\r\nContent-Length: 4\r\n\r\nbody`,
      ]),
    );
    await expectBadBytes(t, each);
  },

  async "a response head over the size limit becomes 502"(t: Tools): Promise<void> {
    rfc("9209-2.1.1-specific");
    const type = /http_response_header_section_size/;
    await expectBad(t, (call) => call.reply(200, [["X-A", "x".repeat(1024 * 1024)]]), type);
    await expectBad(
      t,
      (call) => call.write("HTTP/1.1 200 OK\r\n", "X-A: b\r\n".repeat(200_000)),
      type,
    );
  },

  async "RFC 9110 §7.8: a 101 to a client that has not asked for it does not reach the client"(
    t: Tools,
  ): Promise<void> {
    rfc("9110-7.8-ignored");
    const head = "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: evil\r\n\r\n";
    t.upstream.script = (call) => call.write(head);
    const client = await t.connect();
    client.send(request("GET", "/"));
    // The proxy may also close the connection.
    const answer = await client.readHead().catch(() => undefined);
    expect(answer?.status).not.toBe(101);
  },

  async "an unsolicited 101 response becomes 502"(t: Tools): Promise<void> {
    const head = "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: evil\r\n\r\n";
    await expectBad(t, (call) => call.write(head));
    await expectBad(t, (call) =>
      call.write("HTTP/1.1 101 Switching Protocols\r\n\r\n", "evil bytes"),
    );
  },

  async "a response with both Content-Length and Transfer-Encoding becomes 502 or is forwarded with one of them"(
    t: Tools,
  ): Promise<void> {
    rfc("9112-6.3-both-received");
    const fields = ["Content-Length: 3", "Transfer-Encoding: chunked"];
    for (const head of [fields, fields.toReversed()]) {
      t.upstream.script = (call) =>
        call.write(`HTTP/1.1 200 OK\r\n${head.join("\r\n")}\r\n\r\n5\r\nhello\r\n0\r\n\r\n`);
      // The HTTP client's parser may refuse a response that has both fields.
      const answer = await t.ask(request("GET", "/"));
      if (answer.status === 200) expect(answer).toMatchObject({ text: "hello", cut: false });
      else t.expectGatewayError(answer, 502);
    }
  },

  async "a response with two Content-Lengths or an invalid one becomes 502"(
    t: Tools,
  ): Promise<void> {
    rfc("9112-6.3-length-response");
    const each = [
      "Content-Length: 3\r\nContent-Length: 5",
      "Content-Length: -1",
      "Content-Length: abc",
      "Content-Length: 5, 6",
    ];
    await expectBadBytes(
      t,
      Object.fromEntries(each.map((head) => [head, `HTTP/1.1 200 OK\r\n${head}\r\n\r\nhello`])),
    );
  },

  async "bytes that the upstream sends after a response are not taken for the response to the next request"(
    t: Tools,
  ): Promise<void> {
    rfc("9112-6.3-surplus", "9112-9.2-unrequested");
    const next = "HTTP/1.1 200 OK\r\nContent-Length: 8\r\n\r\npoisoned";
    t.upstream.script = (call) =>
      call.target === "/first"
        ? call.write("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok", next)
        : call.reply(200, [], "clean");
    // Repeat this, because it may depend on timing whether a pool notices the bytes before the next request.
    for (let count = 0; count < 20; count++) {
      expect(await t.ask(request("GET", "/first"))).toMatchObject({ status: 200, text: "ok" });
      expect(await t.ask(request("GET", "/second"))).toMatchObject({ status: 200, text: "clean" });
    }
  },

  async "an upstream's early 413 reaches a client that is still uploading"(
    t: Tools,
  ): Promise<void> {
    rfc("9112-9.5-early-response");
    t.upstream.script = (call) => {
      call.link.socket.pause();
      call.reply(413, [["Connection", "close"]], "too large");
    };
    const client = await t.connect();
    client.send(request("POST", "/", [["Content-Length", String(64 * 1024 * 1024)]]));
    const sending = pour(client.socket, 64 * 1024 * 1024);
    const answer = await client.read();
    if (!t.mayRefuse(answer)) expect(answer).toMatchObject({ status: 413, text: "too large" });
    client.leave("FIN");
    await sending;
  },

  async "an early 413 arrives although the upstream resets the connection after it"(
    t: Tools,
  ): Promise<void> {
    rfc("9112-9.5-early-response");
    // The upstream closes the connection with the upload unread, as gunicorn, hypercorn and Python's own server do.
    t.upstream.script = (call) => {
      call.link.socket.pause();
      call.reply(413, [["Connection", "close"]], "too large");
      setImmediate(() => call.link.socket.destroy());
    };
    const size = 4 * 1024 * 1024;
    for (let count = 0; count < 20; count++) {
      const client = await t.connect();
      client.send(request("POST", "/", [["Content-Length", String(size)]]));
      const sending = pour(client.socket, size);
      expect(await client.read()).toMatchObject({ status: 413, text: "too large" });
      client.leave("FIN");
      await sending;
    }
  },
};
