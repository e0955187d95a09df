/** `--proxy-protocol`: a header of a trusted peer names the client of each connection. */
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { createServer, type IncomingMessage, type Server } from "node:http";
import { connect as connectHttp2 } from "node:http2";
import { connect, type Socket, type TcpNetConnectOpts } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { text } from "node:stream/consumers";
import { connect as connectTls } from "node:tls";
import fc from "fast-check";
import { afterAll, afterEach, beforeEach, describe, expect, onTestFinished, test } from "vitest";
import { expectHeaders, parseHeader } from "../../command/limits/proxyheader.ts";
import type { RequestEnd } from "../../runtimes/node.ts";
import { handleAsRequest } from "../../runtimes/node/internals/upgradechoice.ts";
import { handshake } from "../helpers/handshake.ts";
import { makeCertificate } from "../helpers/certificate.ts";
import { listen } from "../helpers/serve.ts";
import { until, within } from "../helpers/wait.ts";
import { Command, command as run, listening, programs, upstream } from "./_command.ts";

const SIGNATURE = Buffer.from("\r\n\r\n\0\r\nQUIT\n", "latin1");

/** Makes a header of version 2. */
function v2(command: number, kind: number, block = "", length = block.length / 2): Buffer {
  return Buffer.concat([
    SIGNATURE,
    Buffer.from([command, kind, length >> 8, length & 255]),
    Buffer.from(block, "hex"),
  ]);
}

const v1 = (words: string): Buffer => Buffer.from(`PROXY ${words}\r\n`, "latin1");
/** The addresses and ports of a header: from 192.0.2.7, port 1234, to 10.0.0.1, port 443. */
const V4 = "c00002070a00000104d201bb";
const V6 = `20010db8${"0".repeat(23)}7${"0".repeat(32)}04d201bb`;
const MAPPED = `${"0".repeat(20)}ffffc0000207${"0".repeat(32)}04d201bb`;
const UNIX = "2f".padEnd(432, "0");

/** Parses a header. Returns the address and the number of bytes after the header, or the error. */
function parse(bytes: Buffer): string {
  const parser = parseHeader();
  let at = 0;
  try {
    for (let step = parser.next(); ;) {
      if (step.done) return `${step.value} ${bytes.length - at}`;
      if (bytes.length < at + step.value) return "incomplete";
      step = parser.next(bytes.subarray(at, (at += step.value)));
    }
  } catch (error) {
    return (error as Error).message;
  }
}

const longest =
  "UNKNOWN ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff 65535 65535";

describe("the parser of headers", () => {
  test.each([
    ["version 1, IPv4", v1("TCP4 192.0.2.7 10.0.0.1 1234 443"), "192.0.2.7"],
    ["version 1, ports of 0", v1("TCP4 192.0.2.7 0.0.0.0 0 0"), "192.0.2.7"],
    ["version 1, IPv6", v1("TCP6 2001:DB8:0::7 ::1 1234 443"), "2001:db8::7"],
    ["version 1, IPv4 in IPv6 form", v1("TCP6 ::ffff:192.0.2.7 ::1 1 2"), "192.0.2.7"],
    ["version 1, unknown", v1("UNKNOWN"), undefined],
    ["version 1, unknown, with words", v1("UNKNOWN 1 2 \0"), undefined],
    ["version 1, of the greatest length", v1(longest), undefined],
    ["version 2, IPv4", v2(0x21, 0x11, V4), "192.0.2.7"],
    ["version 2, IPv4 over UDP", v2(0x21, 0x12, V4), "192.0.2.7"],
    ["version 2, IPv6", v2(0x21, 0x21, V6), "2001:db8::7"],
    ["version 2, IPv4 in IPv6 form", v2(0x21, 0x21, MAPPED), "192.0.2.7"],
    ["version 2, with TLVs", v2(0x21, 0x11, `${V4}01000268320400020000`), "192.0.2.7"],
    ["version 2, of the greatest length", v2(0x21, 0x11, V4.padEnd(131_070, "0")), "192.0.2.7"],
    ["version 2, a Unix socket", v2(0x21, 0x31, UNIX), undefined],
    ["version 2, unspecified", v2(0x21, 0x00, V4), undefined],
    ["version 2, an unspecified protocol", v2(0x21, 0x10, V4), undefined],
    ["version 2, LOCAL", v2(0x20, 0x00), undefined],
    ["version 2, LOCAL with addresses", v2(0x20, 0x11, V4), undefined],
  ])("a header of %s is parsed up to its end", (_, header, address) => {
    expect(parse(Buffer.concat([header, Buffer.from("GET /")]))).toBe(`${address} 5`);
    for (let n = 0; n < Math.min(header.length, 300); n++) {
      expect(parse(header.subarray(0, n))).toBe("incomplete");
    }
  });

  test.each([
    ["no header", Buffer.from("GET / HTTP/1.1\r\n\r\n")],
    ["a name in lower case", Buffer.from("proxy TCP4 192.0.2.7 10.0.0.1 1 2\r\n")],
    ["LF alone", Buffer.from("PROXY TCP4 192.0.2.7 10.0.0.1 1 2\n")],
    ["CR alone", Buffer.from(`PROXY TCP4 192.0.2.7 10.0.0.1 1 2\r${"x".repeat(200)}`)],
    ["a line that is too long", v1(`${longest} `)],
    ["another protocol", v1("UDP4 192.0.2.7 10.0.0.1 1 2")],
    ["two spaces", v1("TCP4  192.0.2.7 10.0.0.1 1 2")],
    ["a missing port", v1("TCP4 192.0.2.7 10.0.0.1 1")],
    ["a word too much", v1("TCP4 192.0.2.7 10.0.0.1 1 2 3")],
    ["a port of 65536", v1("TCP4 192.0.2.7 10.0.0.1 65536 2")],
    ["a port with a leading zero", v1("TCP4 192.0.2.7 10.0.0.1 01 2")],
    ["an address with a leading zero", v1("TCP4 192.0.2.07 10.0.0.1 1 2")],
    ["an address of the other family", v1("TCP4 2001:db8::7 10.0.0.1 1 2")],
    ["a destination of the other family", v1("TCP6 2001:db8::7 10.0.0.1 1 2")],
    ["an address with a zone", v1("TCP6 fe80::1%eth0 ::1 1 2")],
    ["a host name", v1("TCP4 a.example 10.0.0.1 1 2")],
    ["the version number 1 in a header of version 2", v2(0x11, 0x11, V4)],
    ["an unknown command", v2(0x22, 0x11, V4)],
    ["an unknown family", v2(0x21, 0x41, V4)],
    ["an unknown protocol", v2(0x21, 0x13, V4)],
    ["addresses that are too short", v2(0x21, 0x11, V4.slice(0, -2))],
    ["IPv6 addresses that are too short", v2(0x21, 0x21, V4)],
  ])("%s is refused", (_, header) => {
    expect(parse(header)).toMatch(/^(?:the connection|its|it) /);
  });

  test("random bytes after the beginning of a header are parsed or refused, without any other error", () => {
    const start = fc.constantFrom(
      SIGNATURE,
      Buffer.from("PROXY TCP4 "),
      Buffer.from("PROXY TCP6 "),
    );
    fc.assert(
      fc.property(start, fc.uint8Array({ maxLength: 300 }), (first, rest) => {
        const outcome = parse(Buffer.concat([first, rest]));
        expect(outcome).toMatch(/^(?:incomplete|\S+ \d+|(?:the connection|its|it) .*)$/);
      }),
    );
  });
});

/** Starts a server in this process that answers with the address of the client. */
async function serve(
  headersTimeout = 60_000,
): Promise<{ port: number; server: Server; ends: RequestEnd[]; sockets: Socket[] }> {
  const ends: RequestEnd[] = [];
  const sockets: Socket[] = [];
  const server = createServer((req, res) => {
    void text(req).then((body) => res.end(`${named.get(req.socket)} ${req.url} ${body.length}`));
  });
  const named = new WeakMap<Socket, string>();
  expectHeaders(server, {
    trusts: () => true,
    headersTimeout,
    report: (end) => void ends.push(end),
    nameClient: (socket, address) => named.set(socket, address),
  });
  server.on("connection", (socket: Socket) => void sockets.push(socket));
  onTestFinished(() => server.close().closeAllConnections());
  return { port: await listen(server), server, ends, sockets };
}

describe("headers on connections", () => {
  const get = Buffer.from("GET /a HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");

  test.each([
    ["1", v1("TCP4 192.0.2.7 10.0.0.1 1234 443")],
    ["2", v2(0x21, 0x11, `${V4}01000268320400020000`)],
  ])("a header of version %s may arrive byte by byte", async (_, header) => {
    const { port, sockets } = await serve();
    const client = connect({ port, host: "127.0.0.1", noDelay: true });
    for (const [i, byte] of [...header, ...get].entries()) {
      client.write(Buffer.from([byte]));
      await until(() => (sockets[0]?.bytesRead ?? 0) > i || i + 1 >= header.length, `byte ${i}`);
    }
    expect(await within(text(client), "the response")).toMatch(/\r\n\r\n192\.0\.2\.7 \/a 0$/);
  });

  test("a connection that is given to the server again after an upgrade was refused needs no second header", async () => {
    const { port, server } = await serve();
    server.on("upgrade", (req: IncomingMessage, socket: Socket, rest: Buffer) =>
      handleAsRequest(server, req, socket, rest),
    );
    const client = connect(port, "127.0.0.1");
    client.write(v1("TCP4 192.0.2.7 10.0.0.1 1234 443"));
    client.write(
      "GET /a HTTP/1.1\r\nHost: x\r\nConnection: upgrade, close\r\nUpgrade: h2c\r\n\r\n",
    );
    expect(await within(text(client), "the response")).toMatch(/\r\n\r\n192\.0\.2\.7 \/a 0$/);
  });

  test("the header, a large request and a second request may arrive in one write", async () => {
    const { port } = await serve();
    const size = 300_000;
    const post = `POST /p HTTP/1.1\r\nHost: x\r\nContent-Length: ${size}\r\n\r\n${"x".repeat(size)}`;
    const client = connect(port, "127.0.0.1");
    client.write(Buffer.concat([v1("UNKNOWN"), Buffer.from(post), get]));
    expect(await within(text(client), "both responses")).toMatch(
      new RegExp(`undefined /p ${size}.*undefined /a 0$`, "s"),
    );
  });

  test("a connection without a complete header within `headersTimeout` gets 408", async () => {
    // The timeout is long, because bytes that arrive after the 408 would reset the connection, and the client could lose it.
    const { port, ends } = await serve(2000);
    const client = connect(port, "127.0.0.1");
    client.write("PROXY TCP4 192");
    expect(await within(text(client), "the response")).toMatch(/^HTTP\/1\.1 408 /);
    expect(ends.map(({ status, clientAddress }) => [status, clientAddress])).toEqual([
      [408, "127.0.0.1"],
    ]);
  });

  test("a connection without a header gets 400, and one that sends nothing is not reported", async () => {
    const { port, ends, sockets } = await serve();
    const silent = connect(port, "127.0.0.1").end();
    silent.resume();
    await until(() => sockets[0]?.destroyed === true, "the end of the silent connection");
    const reset = connect(port, "127.0.0.1", () => reset.resetAndDestroy());
    await until(() => sockets[1]?.destroyed === true, "the end of the reset connection");
    const client = connect(port, "127.0.0.1");
    client.write(get);
    expect(await within(text(client), "the response")).toMatch(/^HTTP\/1\.1 400 /);
    // A reset of the connection during the answer must not end the process.
    expect(() => sockets.at(-1)?.emit("error", new Error("a reset"))).not.toThrow();
    for (const cut of ["PROXY", "PROXY TCP4 192"]) {
      const left = connect(port, "127.0.0.1").end(cut);
      expect(await within(text(left), "the end")).toBe("");
    }
    expect(ends.map(({ error }) => (error as Error).message)).toEqual([
      "PROXY protocol: the connection does not begin with a header",
    ]);
  });
});

const folder = mkdtempSync(join(tmpdir(), "fetchway-"));
const own = await makeCertificate();
const [cert, key] = [join(folder, "cert.pem"), join(folder, "key.pem")];
writeFileSync(cert, own.cert);
writeFileSync(key, own.key);
afterAll(() => rmSync(folder, { recursive: true }));

describe("the command", () => {
  const TRUSTED = "127.0.0.1";
  const CLIENT = v1("TCP4 192.0.2.7 10.0.0.1 1234 443");

  beforeEach(() => {
    upstream.handler = ({ headers }, res) => {
      res.end(
        `for ${String(headers["x-forwarded-for"])} proto ${String(headers["x-forwarded-proto"])}`,
      );
    };
  });

  const head = (start: string, ...fields: string[]): string =>
    `${[`${start} HTTP/1.1`, "Host: x", ...fields].join("\r\n")}\r\n\r\n`;

  /** Sends bytes in one write. Returns everything that is received until the end of the connection. */
  async function exchange(origin: string, bytes: Buffer | string, from = TRUSTED): Promise<string> {
    const options = { port: Number(new URL(origin).port), host: "127.0.0.1", localAddress: from };
    const socket = connect(options as TcpNetConnectOpts).on("error", () => {});
    socket.write(bytes);
    return within(
      text(socket).catch(() => "reset"),
      "the response",
    );
  }

  const close = "Connection: close";
  const after = (header: Buffer, ...fields: string[]): Buffer =>
    Buffer.concat([header, Buffer.from(head("GET /", close, ...fields))]);

  test("uses the address in a trusted peer's header for the log, `trustProxy` and forwarding fields", async () => {
    const { origin, proxy } = await listening(
      `${upstream.url} --log common --proxy-protocol ${TRUSTED} --trust-proxy ${TRUSTED},192.0.2.9`,
    );
    const spoofed = "X-Forwarded-For: 198.51.100.1";
    expect(await exchange(origin, after(CLIENT, spoofed))).toMatch(/for 192\.0\.2\.7 proto http$/);
    const trusted = v1("TCP4 192.0.2.9 10.0.0.1 1234 443");
    expect(await exchange(origin, after(trusted, spoofed))).toMatch(
      /for 198\.51\.100\.1, 192\.0\.2\.9 /,
    );
    expect(await exchange(origin, after(v2(0x21, 0x21, V6)))).toMatch(/for 2001:db8::7 /);
    expect(await exchange(origin, after(v2(0x20, 0), spoofed))).toMatch(
      /for 198\.51\.100\.1, 127\.0\.0\.1 /,
    );
    await proxy.says(/^192\.0\.2\.7 .* "GET \/ /m);
    await proxy.says(/^2001:db8::7 .* "GET \/ /m);
  });

  test("refuses trusted peers without a header, and headers of other peers", async () => {
    const { origin, proxy } = await listening(
      `${upstream.url} --log common --proxy-protocol 127.0.0.2`,
    );
    expect(await exchange(origin, after(CLIENT), "127.0.0.2")).toMatch(/ 200 .*for 192\.0\.2\.7 /s);
    expect(await exchange(origin, head("GET /", close), "127.0.0.2")).toMatch(/^HTTP\/1\.1 400 /);
    expect(await exchange(origin, head("GET /", close))).toMatch(/ 200 .*for 127\.0\.0\.1 /s);
    for (const header of [CLIENT, v2(0x21, 0x11, V4)]) {
      expect(await exchange(origin, after(header))).toMatch(/^HTTP\/1\.1 400 /);
    }
    await proxy.says(/^127\.0\.0\.2 .* "- - [^"]*" 400 /m);
    await proxy.says(/(?:^127\.0\.0\.1 .* "- - [^"]*" 400 [^]*){2}/m);
    await proxy.warns(/does not begin with a header/);
    await proxy.warns(/a peer that --proxy-protocol does not name/);
  });

  test("refuses a second header, which two proxies in front may send", async () => {
    const { origin, proxy } = await listening(
      `${upstream.url} --log common --proxy-protocol 127.0.0.2`,
    );
    const twice = Buffer.concat([CLIENT, after(CLIENT)]);
    expect(await exchange(origin, twice, "127.0.0.2")).toMatch(/^HTTP\/1\.1 400 /);
    await proxy.says(/^192\.0\.2\.7 .* "- - [^"]*" 400 /m);
    await proxy.warns(/or a second header/);
  });

  /** Begins TLS after a header. */
  function secure(
    origin: string,
    protocol: string,
    header = CLIENT,
  ): ReturnType<typeof connectTls> {
    const raw = connect(Number(new URL(origin).port), "127.0.0.1");
    raw.write(header);
    const options = { ca: own.cert, servername: "localhost", ALPNProtocols: [protocol] };
    const socket = connectTls({ ...options, socket: raw }).on("error", () => {});
    onTestFinished(() => void socket.destroy());
    return socket;
  }

  test("counts each connection towards the limit of the client that its header names", async () => {
    upstream.handler = (_, res) => void res.write("begun");
    const { origin } = await listening(
      `${upstream.url} --proxy-protocol ${TRUSTED} --max-per-address 2`,
    );
    const open = async (header: Buffer): Promise<string> => {
      const socket = connect(Number(new URL(origin).port), "127.0.0.1").on("error", () => {});
      onTestFinished(() => void socket.destroy());
      let received = "";
      socket.on("data", (data) => (received += String(data)));
      socket.write(Buffer.concat([header, Buffer.from(head("GET /"))]));
      await until(() => received.includes("begun") || socket.destroyed, "the response or the end");
      return socket.destroyed ? "reset" : "begun";
    };
    const other = v1("TCP4 192.0.2.8 10.0.0.1 1234 443");
    expect(await open(CLIENT)).toBe("begun");
    expect(await open(other)).toBe("begun");
    expect(await open(CLIENT)).toBe("begun");
    expect(await open(CLIENT)).toBe("reset");
    expect(await open(other)).toBe("begun");
  });

  test("reads the header before TLS, for HTTP/1.1 and HTTP/2, and on the port of --redirect-http", async () => {
    const { origin, proxy } = await listening(
      `${upstream.url} --log common --cert ${cert} --key ${key} --redirect-http 0 --proxy-protocol ${TRUSTED}`,
    );
    const http1 = secure(origin, "http/1.1");
    http1.write(head("GET /", close));
    expect(await within(text(http1), "the response")).toMatch(/for 192\.0\.2\.7 proto https$/);
    const socket = secure(origin, "h2", v2(0x21, 0x21, V6));
    const session = connectHttp2(origin, { createConnection: () => socket });
    for (let i = 0; i < 2; i++) {
      expect(await within(text(session.request({ ":path": "/" })), "the response")).toBe(
        "for 2001:db8::7 proto https",
      );
    }
    // The log line about an error of an HTTP/2 session also has the client's address.
    const bad = secure(origin, "h2", v2(0x21, 0x11, V4));
    bad.write("no preface of HTTP/2, but as long as one");
    await proxy.says(/^192\.0\.2\.7 .* "- - [^"]*" 400 /m);
    const [, plain = ""] = await proxy.says(/(http:\/\/127\.0\.0\.1:\d+) redirects to https:/);
    expect(await exchange(plain, after(CLIENT))).toMatch(/^HTTP\/1\.1 308 /);
    expect(await exchange(plain, head("GET /"))).toMatch(/^HTTP\/1\.1 400 /);
    // Without a header, a connection is closed, because the client expects TLS.
    expect(await exchange(origin, head("GET /"))).toBe("");
  });

  test.each(["http/1.1", "h2"])(
    "does not count a connection over TLS as idle while its request runs, with %s",
    async (protocol) => {
      upstream.handler = (_, res) => void res.write("begun");
      const { origin } = await listening(
        `${upstream.url} --cert ${cert} --key ${key} --proxy-protocol ${TRUSTED} --max-per-address 1`,
      );
      const busy = secure(origin, protocol);
      let received = "";
      const take = (data: unknown): void => void (received += String(data));
      if (protocol === "http/1.1") busy.on("data", take).write(head("GET /"));
      else {
        const session = connectHttp2(origin, { createConnection: () => busy });
        session.request({ ":path": "/" }).on("data", take);
      }
      await until(() => received.includes("begun"), "the response");
      const second = secure(origin, protocol);
      await until(() => second.destroyed, "the end of the second connection");
      expect(busy.destroyed).toBe(false);
    },
  );

  test("reads the header before HTTP/2 with prior knowledge", async () => {
    const { origin } = await listening(`${upstream.url} --proxy-protocol ${TRUSTED}`);
    for (const header of [CLIENT, v2(0x21, 0x11, V4)]) {
      const session = connectHttp2(origin, {
        createConnection: () => {
          const socket = connect(Number(new URL(origin).port), "127.0.0.1");
          socket.write(header);
          return socket;
        },
      });
      onTestFinished(() => session.destroy());
      expect(await within(text(session.request({ ":path": "/" })), "the response")).toBe(
        "for 192.0.2.7 proto http",
      );
    }
  });

  test("expects no header on connections to the status page", async () => {
    const { proxy, origin } = await listening(
      `${upstream.url} --log off --admin 0 --proxy-protocol ${TRUSTED}`,
    );
    const [, status = ""] = await proxy.says(/status page: (\S+)\//);
    expect((await fetch(`${status}/`)).status).toBe(200);
    expect(await exchange(origin, after(CLIENT))).toMatch(/ 200 /);
  });

  test("reads headers on a Unix domain socket, whose peers count as 127.0.0.1", async () => {
    const path = join(folder, "front.sock");
    const proxy = run(
      `${upstream.url} --log common --host unix:${path} --proxy-protocol loopback --trust-proxy loopback`,
    );
    await proxy.says(/listens on/);
    const ask = async (header: Buffer, ...fields: string[]): Promise<string> => {
      const socket = connect(path);
      socket.write(after(header, "X-Forwarded-For: 198.51.100.1", ...fields));
      return within(text(socket), "the response");
    };
    for (const fields of [[], handshake.map((field) => field.join(": "))]) {
      expect(await ask(CLIENT, ...fields)).toMatch(/for 192\.0\.2\.7 /);
      expect(await ask(v1("UNKNOWN"), ...fields)).toMatch(/for 198\.51\.100\.1, 127\.0\.0\.1 /);
    }
    await proxy.says(/^192\.0\.2\.7 /m);
  });

  test("reads headers in each of several workers", async () => {
    const { origin } = await listening(
      `${upstream.url} --log off --workers 2 --proxy-protocol ${TRUSTED}`,
    );
    for (let i = 0; i < 4; i++) {
      expect(await exchange(origin, after(CLIENT))).toMatch(/for 192\.0\.2\.7 /);
    }
  });
});

describe.each(["bun", "deno"] as const)("the command on %s", (runtime) => {
  test("refuses --proxy-protocol, because the server does not expose its connections", async () => {
    const refused = new Command(
      "http://127.0.0.1:1 --port 0 --proxy-protocol loopback",
      [],
      programs[runtime],
    );
    expect(await refused.refusal()).toMatch(
      /--proxy-protocol "loopback": \w+'s server has no such option; run this on Node/,
    );
  });
});

afterEach(() => {
  upstream.handler = () => {};
});
