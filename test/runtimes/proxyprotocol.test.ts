/** The pool option `proxyProtocol` on Node, Bun and Deno, against an upstream that reads the headers itself. */
import { createServer, type IncomingMessage, type ServerResponse } from "node:http";
import { createServer as createSecureServer } from "node:https";
import { createServer as createNetServer, type Socket } from "node:net";
import { join } from "node:path";
import { afterAll, afterEach, beforeAll, describe, expect, test } from "vitest";
import type { ProgramOptions } from "./_wait.program.ts";
import { makeCertificate } from "../helpers/certificate.ts";
import { connect } from "../helpers/client.ts";
import { EVALUATE, startProgram } from "../helpers/program.ts";
import { listen } from "../helpers/serve.ts";
import { until } from "../helpers/wait.ts";
import { request } from "../helpers/wire.ts";

const PROGRAM = join(import.meta.dirname, "_wait.program.ts");
const SIGNATURE = "0d0a0d0a000d0a515549540a";
const certificate = await makeCertificate();
const ends: (() => unknown)[] = [];

/** The header of each connection to the upstream, in order: text for version 1, hexadecimal digits for version 2. */
const headers: string[] = [];
const open = new Set<Socket>();
const answer = ({ url, socket }: IncomingMessage, res: ServerResponse): void => {
  res.end(`${url} on ${(socket as { number?: number }).number}`);
};
const http = createServer(answer);
const https = createSecureServer(certificate, answer);
https.on("secureConnection", (socket: { _parent?: object }) =>
  Object.assign(socket, { number: (socket._parent as { number: number }).number }),
);

/** Makes an upstream that reads the header of each connection, before TLS if `secure` is true. */
function upstream(secure: boolean): ReturnType<typeof createNetServer> {
  return createNetServer((socket) => {
    open.add(socket);
    socket.on("close", () => open.delete(socket)).on("error", () => {});
    socket.once("readable", () => {
      const read = (socket.read() as Buffer | null) ?? Buffer.alloc(0);
      const isV1 = read.toString("latin1").startsWith("PROXY ");
      const length = isV1 ? read.indexOf("\r\n") + 2 : 16 + read.readUInt16BE(14);
      const header = read.subarray(0, length);
      headers.push(isV1 ? header.toString("latin1") : header.toString("hex"));
      Object.assign(socket, { number: headers.length });
      if (read.length > length) socket.unshift(read.subarray(length));
      (secure ? https : http).emit("connection", socket);
    });
  });
}

const plain = upstream(false);
const tls = upstream(true);
const ports = { plain: 0, tls: 0 };
beforeAll(async () => {
  ports.plain = await listen(plain);
  ports.tls = await listen(tls);
});
afterAll(() => {
  plain.close();
  tls.close();
});
afterEach(async () => {
  for (const end of ends.splice(0)) await end();
  headers.length = 0;
  await until(() => open.size === 0, "the connections to close");
});

describe.each(Object.keys(EVALUATE))("on %s", (runtime) => {
  /** Starts a proxy. Returns a function that sends a request; its `X-Forwarded-For` is `client`, if given. */
  async function start(
    pool: object,
    options: Partial<ProgramOptions> = {},
  ): Promise<(path: string, client?: string) => Promise<string>> {
    const full = { target: `http://127.0.0.1:${ports.plain}`, trustProxy: true, ...options, pool };
    const args = [...(runtime === "deno" ? ["run", "-A"] : []), PROGRAM, JSON.stringify(full)];
    const program = startProgram(runtime, args);
    ends.push(() => program[Symbol.asyncDispose]());
    const port = Number((await program.printed(/port=(\d+)/))[1]);
    return async (path, client) => {
      const sender = await connect(port);
      sender.send(request("GET", path, client === undefined ? [] : [["X-Forwarded-For", client]]));
      const { status, text } = await sender.read();
      sender.leave("FIN");
      return `${status} ${text}`;
    };
  }

  const toHex = (port: number): string => port.toString(16).padStart(4, "0");

  test("a header of version 1 with the client's address precedes the request", async () => {
    const send = await start({ proxyProtocol: "v1" });
    expect(await send("/a")).toBe("200 /a on 1");
    expect(await send("/b", "192.0.2.7")).toBe("200 /b on 2");
    expect(await send("/c", "2001:db8::7")).toBe("200 /c on 3");
    expect(headers).toEqual([
      `PROXY TCP4 127.0.0.1 127.0.0.1 0 ${ports.plain}\r\n`,
      `PROXY TCP4 192.0.2.7 127.0.0.1 0 ${ports.plain}\r\n`,
      `PROXY TCP6 2001:db8::7 :: 0 ${ports.plain}\r\n`,
    ]);
  });

  test("a header of version 2 with the client's address precedes the TLS handshake", async () => {
    const target = `https://127.0.0.1:${ports.tls}`;
    const send = await start({ proxyProtocol: "v2", tls: { ca: certificate.cert } }, { target });
    expect(await send("/a", "192.0.2.7")).toBe("200 /a on 1");
    expect(await send("/b", "192.0.2.7")).toBe("200 /b on 1");
    expect(await send("/c", "2001:db8::7")).toBe("200 /c on 2");
    const port = toHex(ports.tls);
    expect(headers).toEqual([
      `${SIGNATURE}2111000cc00002077f0000010000${port}`,
      `${SIGNATURE}2121002420010db8${"0".repeat(23)}7${"0".repeat(32)}0000${port}`,
    ]);
  });

  test("a connection with TLS is closed when the proxy is destroyed, or if the certificate is not trusted", async () => {
    const target = `https://127.0.0.1:${ports.tls}`;
    const send = await start({ proxyProtocol: "v2", tls: { ca: certificate.cert } }, { target });
    expect(await send("/a")).toBe("200 /a on 1");
    expect(open.size).toBe(1);
    await send("/destroy");
    await until(() => open.size === 0, "the end of the connection");
    const refusing = await start({ proxyProtocol: "v1" }, { target });
    expect(await refusing("/a")).toMatch(/^502 .*tls_certificate_error/);
    expect(headers).toHaveLength(2);
    await until(() => open.size === 0, "the end of the connection");
  });

  test("a wrong TLS option fails only the request, like without the header", async () => {
    const target = `https://127.0.0.1:${ports.tls}`;
    const wrong = { minVersion: "no version" };
    const without = await start({ tls: wrong }, { target });
    const send = await start({ proxyProtocol: "v2", tls: wrong }, { target });
    const expected = await without("/a");
    expect(expected).toMatch(/^500 /);
    expect(await send("/a")).toBe(expected);
    expect(await send("/b")).toBe(expected);
    await until(() => open.size === 0, "the end of the connections");
  });

  test("a connection is reused only for requests of the same client", async () => {
    const send = await start({ proxyProtocol: "v1" });
    const [one, other] = ["192.0.2.1", "192.0.2.2"];
    expect(await send("/1", one)).toBe("200 /1 on 1");
    expect(await send("/2", other)).toBe("200 /2 on 2");
    expect(await send("/3", one)).toBe("200 /3 on 1");
    expect(await send("/4", other)).toBe("200 /4 on 2");
  });

  test("at `maxSockets`, another client's connection is closed to make room for a new one", async () => {
    const send = await start({ proxyProtocol: "v1", maxSockets: 1 });
    const clients = ["192.0.2.1", "192.0.2.2", "192.0.2.1", "192.0.2.2"];
    expect(await send("/0", clients[0])).toBe("200 /0 on 1");
    const answers = await Promise.all(clients.map((client, i) => send(`/${i}`, client)));
    expect(answers.every((each) => each.startsWith("200 "))).toBe(true);
    const named = headers.map((header) => header.split(" ")[2]);
    answers.forEach((each, i) => {
      expect(named[Number(each.split(" ").at(-1)) - 1]).toBe(clients[i]);
    });
  });

  test("the header of a health check names the proxy itself", async () => {
    const target = [`http://127.0.0.1:${ports.plain}`];
    await start(
      { proxyProtocol: "v1" },
      { target, balancing: { check: { path: "/up", interval: 10 } } },
    );
    await until(() => headers.length > 0, "a check");
    const own = /^PROXY TCP4 127\.0\.0\.1 127\.0\.0\.1 ([1-9]\d*) (\d+)\r\n$/.exec(
      headers[0] ?? "",
    );
    expect(Number(own?.[2])).toBe(ports.plain);
  });

  test("if the client's address is unknown, the header says that the connection is the proxy's own", async () => {
    const send = await start({ proxyProtocol: "v2" });
    expect(await send("/a", "unknown")).toBe("200 /a on 1");
    expect(headers).toEqual([`${SIGNATURE}20000000`]);
  });
});
