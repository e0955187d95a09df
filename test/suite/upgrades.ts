/** WebSockets and other upgrades, by the same rules as any request (RFC 9110 §7.8, RFC 6455). */
import { createHash } from "node:crypto";
import { once } from "node:events";
import { expect } from "vitest";
import { WebSocket, type RawData } from "ws";
import type { Call } from "../helpers/link.ts";
import type { SetupName } from "../hosts/_setups.ts";
import { advisory } from "../conformance/advisory.ts";
import { rfc } from "../conformance/rfc.ts";
import { handshake } from "../helpers/handshake.ts";
import type { Tools } from "./_suite.ts";
import { pause, settled, until, within } from "../helpers/wait.ts";
import { request, type Header } from "../helpers/wire.ts";
import { accept } from "../helpers/websocket.ts";

const KEY = new Map(handshake).get("Sec-WebSocket-Key") as string;

/** Opens a WebSocket through the proxy; its messages are collected from the start. */
async function open(
  t: Tools,
  { setup = "default", path = "/", protocols = [] as string[], headers = {} } = {},
): Promise<Messages> {
  const port = t.host.port(setup as SetupName);
  const socket = new WebSocket(`ws://127.0.0.1:${port}${path}`, protocols, { headers });
  const messages = new Messages(socket);
  await within(once(socket, "open"), "the WebSocket's opening");
  return messages;
}

/** A WebSocket, and the messages that it has received. */
class Messages {
  readonly socket: WebSocket;
  readonly received: (string | Buffer)[] = [];
  /** The close code and the reason. */
  closed: [number, string] | undefined;

  constructor(socket: WebSocket) {
    this.socket = socket;
    socket.on("message", (data: RawData, isBinary) => {
      const bytes = data as Buffer;
      this.received.push(isBinary ? bytes : bytes.toString());
    });
    socket.on("close", (code, reason) => (this.closed = [code, reason.toString()]));
    socket.on("error", () => {});
  }

  async next(index = 0): Promise<string | Buffer> {
    await until(() => this.received.length > index, `message ${index}`);
    return this.received[index] as string;
  }

  async end(): Promise<[number, string]> {
    await until(() => this.closed !== undefined, "the WebSocket's end");
    return this.closed as [number, string];
  }
}

/** Answers handshakes with WebSockets that echo each message. */
function echoing(t: Tools, protocol?: string): WebSocket[] {
  const sockets: WebSocket[] = [];
  t.upstream.script = async (call) => {
    const socket = await accept(call, protocol);
    sockets.push(socket);
    socket.on("message", (data, isBinary) => socket.send(data, { binary: isBinary }));
  };
  return sockets;
}

function acceptOf(key: string): string {
  return createHash("sha1").update(`${key}258EAFA5-E914-47DA-95CA-C5AB0DC85B11`).digest("base64");
}

/**
 * Opens a WebSocket whose upstream answers with a 101 of this version and these `Sec-WebSocket-Accept` fields.
 * @returns the status that the client gets
 */
async function answerWith(
  t: Tools,
  version: string,
  choose: (right: string) => string[],
): Promise<number> {
  t.upstream.script = (call) => {
    const values = choose(acceptOf(call.get("sec-websocket-key") as string));
    const fields = values.map((value) => `Sec-WebSocket-Accept: ${value}\r\n`).join("");
    call.write(
      `${version} 101 Switching Protocols\r\n`,
      `Connection: Upgrade\r\nUpgrade: websocket\r\n${fields}\r\n`,
    );
  };
  const client = await t.connect();
  client.send(request("GET", "/", handshake));
  const { status } = await client.readHead();
  client.leave("FIN");
  await t.upstream.reset();
  return status;
}

/** Answers a handshake with a 101 that accepts its key. */
function switchTo(call: Call, more: Header[]): void {
  const accepted = acceptOf(call.get("sec-websocket-key") as string);
  const fields: Header[] = [["Upgrade", "websocket"], ["Sec-WebSocket-Accept", accepted], ...more];
  const connection: Header[] = more.some(([name]) => name === "Connection")
    ? []
    : [["Connection", "Upgrade"]];
  call.reply("101 Switching Protocols", [...connection, ...fields], null);
}

/** Returns the fields of a handshake with another value of one of them. */
function withField(name: string, value: string): Header[] {
  return handshake.map((field) => (field[0] === name ? [name, value] : field));
}

export const upgrades = {
  async "RFC 6455 §4: the handshakes with the client and with the upstream are complete"(
    t: Tools,
  ): Promise<void> {
    rfc("6455-4.1-handshake-sent", "6455-4.1-key", "6455-4.2.2-accept", "6455-9.1-extensions");
    rfc("9110-7.8-101", "9110-7.8-nominated");
    t.upstream.script = (call) => switchTo(call, []);
    const client = await t.connect();
    const offers: Header[] = [
      ["Sec-WebSocket-Protocol", "a, b"],
      ["Sec-WebSocket-Extensions", "permessage-deflate"],
    ];
    client.send(request("GET", "/socket", [...handshake, ...offers]));
    const head = await client.readHead();
    expect(head).toMatchObject({ status: 101, version: "1.1" });
    expect(head.get("upgrade")?.toLowerCase()).toBe("websocket");
    expect(head.get("connection")).toMatch(/\bupgrade\b/i);
    expect(head.all("sec-websocket-accept")).toEqual([acceptOf(KEY)]);
    // The upstream has chosen neither, and no server may choose in its place.
    expect(head.all("sec-websocket-protocol")).toEqual([]);
    expect(head.all("sec-websocket-extensions")).toEqual([]);
    const call = t.upstream.calls[0] as Call;
    expect(call.head).toMatch(/^GET \/socket HTTP\/1\.1\r\n/);
    expect(call.get("upgrade")?.toLowerCase()).toBe("websocket");
    expect(call.get("connection")).toMatch(/\bupgrade\b/i);
    expect(call.all("sec-websocket-version")).toEqual(["13"]);
    const keys = call.all("sec-websocket-key");
    expect(keys.map((key) => Buffer.from(key, "base64").length)).toEqual([16]);
  },

  async "RFC 6455 §4.2.1: a handshake with a malformed key gets an HTTP error"(
    t: Tools,
  ): Promise<void> {
    rfc("6455-4.2.1-validated");
    for (const key of ["x", "", `${KEY}, ${KEY}`]) {
      echoing(t);
      const answer = await t.ask(request("GET", "/", withField("Sec-WebSocket-Key", key)));
      expect(answer.status, key).toBe(400);
    }
  },

  async "RFC 6455 §4.4: a handshake with a version that the upstream refuses is answered with the upstream's versions"(
    t: Tools,
  ): Promise<void> {
    rfc("6455-4.2.2-version", "6455-4.4-versions");
    t.upstream.script = (call) =>
      call.get("sec-websocket-version") === "13"
        ? switchTo(call, [])
        : call.reply(426, [["Sec-WebSocket-Version", "13"]], "no");
    const answer = await t.ask(request("GET", "/", withField("Sec-WebSocket-Version", "99")));
    expect(answer.status).toBe(426);
    expect(answer.all("sec-websocket-version")).toEqual(["13"]);
  },

  async "RFC 9110 §7.8: a handshake with Expect: 100-continue gets 100 before its 101"(
    t: Tools,
  ): Promise<void> {
    rfc("9110-7.8-continue-first");
    echoing(t);
    const client = await t.connect();
    client.send(request("GET", "/", [...handshake, ["Expect", "100-continue"]]));
    const { status, interim } = await client.readHead();
    expect([...interim.map((head) => head.status), status]).toEqual([100, 101]);
  },

  async "a WebSocket carries text and binary messages of any size in both directions"(
    t: Tools,
  ): Promise<void> {
    echoing(t);
    const client = await open(t, { path: "/socket?x=1" });
    expect(t.upstream.calls[0]?.target).toBe("/socket?x=1");
    const large = Buffer.alloc(1_000_000, "0123456789abcdef");
    client.socket.send("h\u00e9llo");
    client.socket.send(Buffer.of(0, 255, 128));
    client.socket.send("");
    client.socket.send(large);
    expect(await client.next(3)).toEqual(large);
    expect(client.received.slice(0, 3)).toEqual(["h\u00e9llo", Buffer.of(0, 255, 128), ""]);
    client.socket.close(1000);
    await client.end();
  },

  async "close codes and reasons of a WebSocket pass in both directions"(t: Tools): Promise<void> {
    const sockets = echoing(t);
    const first = await open(t);
    let seen: [number, string] | undefined;
    sockets[0]?.on("close", (code, reason) => (seen = [code, reason.toString()]));
    first.socket.close(4001, "bye");
    await until(() => seen !== undefined, "the close at the upstream");
    expect(seen).toEqual([4001, "bye"]);
    expect(await first.end()).toEqual([4001, "bye"]);
    const second = await open(t);
    sockets[1]?.close(1012, "restart");
    expect(await second.end()).toEqual([1012, "restart"]);
    const third = await open(t);
    sockets[2]?.close();
    expect(await third.end()).toEqual([1005, ""]);
    const fourth = await open(t);
    let code: number | undefined;
    sockets[3]?.on("close", (closed) => (code = closed));
    fourth.socket.close();
    await until(() => code !== undefined, "the close without a code at the upstream");
    expect(code).toBe(1005);
  },

  async "a WebSocket's subprotocol is the one that the upstream chooses"(t: Tools): Promise<void> {
    echoing(t, "b");
    const client = await open(t, { protocols: ["a", "b"] });
    expect(t.upstream.calls[0]?.get("sec-websocket-protocol")).toMatch(/^a, ?b$/);
    expect(client.socket.protocol).toBe("b");
    client.socket.close();
  },

  async "a WebSocket has no subprotocol if the upstream chooses none"(t: Tools): Promise<void> {
    t.upstream.script = (call) => {
      const fields: Header[] = [
        ["Upgrade", "websocket"],
        ["Connection", "Upgrade"],
        ["Sec-WebSocket-Accept", acceptOf(call.get("sec-websocket-key") ?? "")],
      ];
      call.reply("101 Switching Protocols", fields, null);
    };
    const client = await t.connect();
    client.send(request("GET", "/", [...handshake, ["Sec-WebSocket-Protocol", "a, b"]]));
    const head = await client.readHead();
    expect(head.status).toBe(101);
    expect(head.all("sec-websocket-protocol")).toEqual([]);
  },

  async "fragments of a WebSocket's message arrive as one message, with pings answered between them"(
    t: Tools,
  ): Promise<void> {
    const sockets = echoing(t);
    const client = await open(t);
    const fragment = async (sender: WebSocket, first: string, last: string): Promise<void> => {
      const answered = once(sender, "pong");
      sender.send(first, { fin: false });
      sender.ping(first);
      expect(String((await within(answered, "the pong"))[0])).toBe(first);
      sender.send(last, { fin: true });
    };
    await fragment(client.socket, "frag", "ment");
    expect(await client.next()).toBe("fragment");
    await fragment(sockets[0] as WebSocket, "of the ", "upstream");
    expect(await client.next(1)).toBe("of the upstream");
    client.socket.close();
  },

  async "a WebSocket whose upstream breaks off the connection ends for the client without a close code"(
    t: Tools,
  ): Promise<void> {
    const sockets = echoing(t);
    const client = await open(t);
    sockets[0]?.terminate();
    expect((await client.end())[0]).toBe(1006);
  },

  async "a WebSocket whose client breaks off the connection closes the upstream's connection"(
    t: Tools,
  ): Promise<void> {
    const sockets = echoing(t);
    const client = await open(t);
    client.socket.terminate();
    await until(() => sockets[0]?.readyState === WebSocket.CLOSED, "the end at the upstream");
    await within(t.upstream.links[0]?.closed as Promise<void>, "the connection's end");
  },

  async "the fields of a WebSocket handshake are forwarded by the rules for any request"(
    t: Tools,
  ): Promise<void> {
    rfc("9110-7.8-nominated");
    echoing(t);
    const headers = {
      Origin: "https://evil.test",
      Cookie: "a=1; b=2",
      "X-Forwarded-For": "198.51.100.1",
      "Proxy-Authorization": "Basic x",
      "Sec-WebSocket-Origin": "null",
    };
    const client = await open(t, { headers });
    const call = t.upstream.calls[0] as Call;
    // Only the upstream knows which origins it accepts (RFC 6455 §10.2).
    expect(call.get("origin")).toBe("https://evil.test");
    expect(call.get("sec-websocket-origin")).toBe("null");
    expect(call.get("cookie")).toBe("a=1; b=2");
    expect(call.get("host")).toBe(t.upstream.authority);
    expect(call.get("x-forwarded-proto")).toMatch(/^http$/);
    expect(call.all("x-forwarded-for")).not.toContain("198.51.100.1");
    expect(call.all("proxy-authorization")).toEqual([]);
    expect(call.get("upgrade")?.toLowerCase()).toBe("websocket");
    expect(call.get("connection")?.toLowerCase()).toBe("upgrade");
    expect(call.framing).toEqual({ kind: "none" });
    client.socket.close();
    const trusted = { "X-Forwarded-For": "203.0.113.7", "X-Forwarded-Proto": "https" };
    (await open(t, { setup: "trusting", headers: trusted })).socket.close();
    expect(t.upstream.calls[1]?.all("x-forwarded-for").join()).toMatch(/^203\.0\.113\.7\b/);
    expect(t.upstream.calls[1]?.get("x-forwarded-proto")).toBe("https");
  },

  async "Origin and the fields of WebSockets pass unchanged in a request that is no handshake"(
    t: Tools,
  ): Promise<void> {
    const fields: Header[] = [
      ["Origin", "https://evil.test"],
      ["Sec-WebSocket-Key", "forged"],
      ["Sec-WebSocket-Version", "99"],
      ["Sec-WebSocket-Protocol", "a b"],
      ["Sec-WebSocket-Extensions", "x; y"],
      ["Sec-WebSocket-Accept", "forged"],
    ];
    t.upstream.script = (call) => call.reply(200, fields, "ok");
    const answer = await t.ask(request("GET", "/", fields));
    expect(answer).toMatchObject({ status: 200, text: "ok" });
    for (const [name, value] of fields) {
      expect([t.upstream.calls[0]?.all(name), answer.all(name)], name).toEqual([[value], [value]]);
    }
  },

  async "hooks see a WebSocket handshake and its 101"(t: Tools): Promise<void> {
    echoing(t);
    const socket = new WebSocket(`ws://127.0.0.1:${t.host.port("hooked")}/`);
    const [answer] = (await within(once(socket, "upgrade"), "the 101")) as [
      { headers: Record<string, string> },
    ];
    expect(t.upstream.calls[0]?.get("x-hooked")).toBe("request");
    expect(answer.headers["x-hooked"]).toBe("response");
    socket.on("error", () => {}).close();
  },

  async "the response with which an upstream refuses a WebSocket handshake reaches the client"(
    t: Tools,
  ): Promise<void> {
    rfc("6455-4.1-not-101");
    t.upstream.script = (call) =>
      call.reply(403, [["X-Why", "because"]], JSON.stringify({ error: "no" }));
    const client = await t.connect();
    client.send(request("GET", "/", handshake));
    const answer = await client.read();
    expect(answer).toMatchObject({ status: 403, text: '{"error":"no"}', cut: false });
    expect(answer.get("x-why")).toBe("because");
  },

  async "CVE-2024-23326, CVE-2026-2833: frames that follow a refused handshake do not reach the upstream"(
    t: Tools,
  ): Promise<void> {
    for (const status of [400, 426, 200]) {
      t.upstream.script = (call) => call.reply(status, [["Connection", "keep-alive"]], "no");
      const client = await t.connect();
      // A text frame that is masked by zeros. It is sent in the packet of the handshake, and again after the response.
      const frame = Buffer.from("\x81\x85\0\0\0\0hello", "latin1");
      client.send(request("GET", "/", handshake), frame);
      // A server may answer with another status, or close the connection because of the bytes behind the handshake.
      await client.read().catch(() => {});
      client.send(frame);
      client.finish();
      await client.rest().catch(() => {});
      expect(t.upstream.links.filter((link) => !link.idle)).toEqual([]);
      await t.upstream.reset();
    }
  },

  async "the bytes after a refused upgrade are not sent to the upstream as if it had succeeded"(
    t: Tools,
  ): Promise<void> {
    advisory("CVE-2026-2833");
    for (const [status, body] of [
      [400, "no"],
      [426, ""],
      [200, "an ordinary page"],
    ] as const) {
      t.upstream.script = (call) => call.reply(status, [["Connection", "keep-alive"]], body);
      const client = await t.connect();
      // Send a request in the packet of the handshake, and another one later, as if the upgrade had succeeded.
      const smuggled = request("GET", "/smuggled", [["Host", "internal"]]);
      client.send(request("GET", "/", handshake), smuggled);
      const answer = await client.read();
      client.send(smuggled);
      client.finish();
      await client.rest();
      expect(answer.status).toBe(status);
      const targets = t.upstream.calls.map((call) => call.target);
      expect(targets.slice(0, 1)).toEqual(["/"]);
      // A host that keeps the connection has parsed the rest as a request, and has forwarded it like any request.
      for (const call of t.upstream.calls.slice(1)) {
        expect(call.get("host")).toBe(t.upstream.authority);
        expect(call.get("x-forwarded-for")).toBeDefined();
      }
      await t.upstream.reset();
    }
  },

  async "a WebSocket handshake with a body is answered with 400"(t: Tools): Promise<void> {
    advisory("CVE-2026-58055");
    for (const [framing, body] of [
      [["Content-Length", "5"], "hello"],
      [["Transfer-Encoding", "chunked"], "5\r\nhello\r\n0\r\n\r\n"],
    ] as const) {
      const client = await t.connect();
      client.send(request("GET", "/", [...handshake, [...framing]]), body);
      expect((await client.read()).status).toBe(400);
      expect(t.upstream.calls).toEqual([]);
    }
  },

  async "an Upgrade that is no WebSocket handshake is ignored"(t: Tools): Promise<void> {
    for (const [method, fields] of [
      ["HEAD", handshake],
      ["POST", [...handshake, ["Content-Length", "0"]]],
      ["GET", handshake.filter(([name]) => name !== "Connection")],
      ["GET", handshake.map(([name, value]): Header => [name, name === "Upgrade" ? "tcp" : value])],
    ] as [string, Header[]][]) {
      const answer = await t.ask(request(method, "/", fields));
      expect(answer.status, `${method} ${fields.join()}`).toBe(200);
      const [call] = t.upstream.calls;
      expect(call?.all("upgrade")).toEqual([]);
      await t.upstream.reset();
    }
  },

  async "a POST that offers h2c is forwarded with its body, and its connection stays usable"(
    t: Tools,
  ): Promise<void> {
    advisory("CVE-2026-88008");
    const client = await t.connect();
    const offer: Header[] = [
      ["Connection", "Upgrade, HTTP2-Settings"],
      ["Upgrade", "h2c"],
      ["HTTP2-Settings", "AAEAAEAAAAIAAAABAAMAAABkAAQBAAAAAAUAAEAA"],
    ];
    const body = "x".repeat(100_000);
    for (const framing of [
      ["Content-Length", "100000"],
      ["Transfer-Encoding", "chunked"],
    ] as Header[]) {
      const isChunked = framing[0] === "Transfer-Encoding";
      client.send(request("POST", "/first", [...offer, framing]));
      client.send(isChunked ? `186a0\r\n${body}\r\n0\r\n\r\n` : body);
      expect(await client.read()).toMatchObject({ status: 200, text: body });
    }
    client.send(request("GET", "/last", offer));
    expect((await client.read()).status).toBe(200);
    expect(t.upstream.calls.map((call) => call.target)).toEqual(["/first", "/first", "/last"]);
  },

  async "a frame in the same packet as the handshake reaches the upstream"(
    t: Tools,
  ): Promise<void> {
    const received: string[] = [];
    t.upstream.script = async (call) => {
      (await accept(call)).on("message", (data: Buffer) => received.push(data.toString()));
    };
    const client = await t.connect();
    // A frame with the text "hi", masked with zeros.
    client.send(request("GET", "/", handshake), Buffer.of(0x81, 0x82, 0, 0, 0, 0, 0x68, 0x69));
    const head = await client.readHead();
    expect(head.status).toBe(101);
    expect(head.get("sec-websocket-accept")).toBe(acceptOf(KEY));
    expect(head.get("upgrade")?.toLowerCase()).toBe("websocket");
    expect(head.get("connection")?.toLowerCase()).toBe("upgrade");
    await until(() => received.length > 0, "the message at the upstream");
    expect(received).toEqual(["hi"]);
  },

  async "a 101 with a wrong or missing Sec-WebSocket-Accept becomes 502"(t: Tools): Promise<void> {
    rfc("6455-4.1-checked");
    const wrong = acceptOf("another key");
    for (const choose of [
      () => [wrong],
      () => [],
      (right: string) => [right, wrong],
      (right: string) => [wrong, right],
      (right: string) => [right, right],
      (right: string) => [`${right}, ${wrong}`],
    ]) {
      const status = await answerWith(t, "HTTP/1.1", choose);
      expect(status, choose("right").join(" and ")).toBe(502);
    }
  },

  async "RFC 9110 §7.8: an HTTP/1.0 response with status 101 becomes 502"(t: Tools): Promise<void> {
    expect(await answerWith(t, "HTTP/1.0", (right) => [right])).toBe(502);
    expect(await answerWith(t, "HTTP/1.1", (right) => [right])).toBe(101);
  },

  async "a 101 whose Connection does not name Upgrade becomes 502"(t: Tools): Promise<void> {
    rfc("6455-4.1-checked");
    t.upstream.script = (call) => switchTo(call, [["Connection", "keep-alive"]]);
    const client = await t.connect();
    client.send(request("GET", "/", handshake));
    expect((await client.readHead()).status).toBe(502);
  },

  async "a 101 with a subprotocol or an extension that was not offered becomes 502"(
    t: Tools,
  ): Promise<void> {
    rfc("6455-4.1-subprotocol");
    const offered: Header = ["Sec-WebSocket-Protocol", "a, b"];
    for (const fields of [
      [["Sec-WebSocket-Protocol", "c"]],
      [
        ["Sec-WebSocket-Protocol", "a"],
        ["Sec-WebSocket-Protocol", "b"],
      ],
      [["Sec-WebSocket-Extensions", "x"]],
    ] as Header[][]) {
      t.upstream.script = (call) => switchTo(call, fields);
      const client = await t.connect();
      client.send(request("GET", "/", [...handshake, offered]));
      expect((await client.readHead()).status, JSON.stringify(fields)).toBe(502);
      client.leave("FIN");
      await t.upstream.reset();
    }
  },

  async "a 101 that names another protocol or none becomes 502"(t: Tools): Promise<void> {
    rfc("6455-4.1-checked");
    for (const fields of [[["Upgrade", "tcp"]], []] as Header[][]) {
      t.upstream.script = (call) => {
        const accepted: Header = ["Sec-WebSocket-Accept", acceptOf(KEY)];
        call.reply(
          "101 Switching Protocols",
          [["Connection", "Upgrade"], accepted, ...fields],
          null,
        );
      };
      expect((await t.ask(request("GET", "/", handshake))).status).toBe(502);
      await t.upstream.reset();
    }
  },

  async "a WebSocket handshake becomes 502 if the upstream refuses the connection, and 504 if it is silent"(
    t: Tools,
  ): Promise<void> {
    const refused = await t.ask(request("GET", "/", handshake), "refused");
    expect(refused.status).toBe(502);
    expect(refused.get("proxy-status")).toMatch(/^fetchway; error=connection_/);
    t.upstream.script = () => {};
    const silent = await t.ask(request("GET", "/", handshake), "timeouts");
    expect(silent.status).toBe(504);
    expect(silent.get("proxy-status")).toBe("fetchway; error=http_response_timeout");
  },

  async "an upstream that does not read its WebSocket makes the client wait"(
    t: Tools,
  ): Promise<void> {
    const sockets = echoing(t);
    const client = await open(t);
    await until(() => sockets.length > 0, "the upstream's WebSocket");
    const [server] = sockets as [WebSocket];
    let received = 0;
    server.removeAllListeners("message").on("message", (data: Buffer) => (received += data.length));
    server.pause();
    const message = Buffer.alloc(65_536);
    let sent = 0;
    const send = (): void => {
      if (sent === 64 * 1024 * 1024) return;
      sent += message.length;
      client.socket.send(message, { compress: false }, (error) => error ?? send());
    };
    send();
    expect(await settled(() => sent, undefined, 200)).toBeLessThan(48 * 1024 * 1024);
    server.resume();
    await until(() => received === 64 * 1024 * 1024, "all messages");
    client.socket.close();
  },

  async "no deadline applies to an open WebSocket"(t: Tools): Promise<void> {
    echoing(t);
    // `timeout` and `idleTimeout` of this proxy are 2 s. On a busy machine, a handshake may take longer, and gets 504.
    let client: Awaited<ReturnType<typeof open>> | undefined;
    for (let attempt = 0; client === undefined; attempt++) {
      client = await open(t, { setup: "lasting" }).catch((error: unknown) => {
        if (attempt === 9 || !String(error).includes("504")) throw error;
        return undefined;
      });
    }
    await pause(3000);
    client.socket.send("still there");
    expect(await client.next()).toBe("still there");
    client.socket.close();
  },

  async "a client that disconnects before the handshake is answered closes the upstream request"(
    t: Tools,
  ): Promise<void> {
    const accepted: Header = ["Sec-WebSocket-Accept", acceptOf(KEY)];
    for (const how of ["FIN", "RST"] as const) {
      for (const isAnswered of [false, true]) {
        t.upstream.script = () => {};
        const client = await t.connect();
        client.send(request("GET", "/", handshake));
        await until(() => t.upstream.calls.length > 0, "the handshake at the upstream");
        const call = await t.upstream.call();
        client.leave(how);
        if (isAnswered) {
          // Give the server time to notice the disconnect, but not much more.
          await pause(50);
          accepted[1] = acceptOf(call.get("sec-websocket-key") ?? "");
          call.reply("101 Switching Protocols", [...handshake.slice(0, 2), accepted], null);
        }
        // The limit is shorter than `tunnelCloseTimeout`.
        await within(call.link.closed, `the end of the upstream's connection after ${how}`, 8000);
        await t.upstream.reset();
      }
    }
  },
};
