/** The attacks of advisories about HTTP/2 servers, against the command with its own certificate. */
import { once } from "node:events";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { connect as connectHttp2 } from "node:http2";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { text } from "node:stream/consumers";
import { connect } from "node:tls";
import { afterAll, beforeAll, expect, test } from "vitest";
import { makeCertificate } from "../helpers/certificate.ts";
import { Command, upstream } from "./_command.ts";
import {
  DATA,
  END_HEADERS,
  END_STREAM,
  field,
  frame,
  GOAWAY,
  HEADERS,
  PREFACE,
  RawConnection,
  RST_STREAM,
  SETTINGS,
  uint32,
  WINDOW_UPDATE,
} from "../helpers/frames.ts";
import { residentBytes } from "../hosts/_host.ts";
import { pause, until, within } from "../helpers/wait.ts";
import { endsBrokenSessions } from "../hosts/_node.ts";

const MIB = 1024 * 1024;
const { cert, key } = await makeCertificate();
const folder = mkdtempSync(join(tmpdir(), "fetchway-"));

/**
 * Code that counts the HTTP/2 sessions in the memory of its process. Node does not export their class, so the code takes it
 * from a session.
 */
const COUNTER = `
  import { connect, createServer } from "node:http2";
  import { queryObjects } from "node:v8";
  const server = createServer();
  const session = await new Promise((resolve) => {
    server.on("session", resolve);
    server.listen(0, "127.0.0.1", () => connect("http://127.0.0.1:" + server.address().port));
  });
  const { constructor } = session;
  process.on("SIGUSR2", () => console.error("sessions: " + queryObjects(constructor)));
`;

let command: Command;
let port: number;
let paths: string[] = [];
beforeAll(async () => {
  writeFileSync(join(folder, "cert.pem"), cert);
  writeFileSync(join(folder, "key.pem"), key);
  writeFileSync(join(folder, "counter.mjs"), COUNTER);
  upstream.handler = (req, res) => {
    paths.push(req.url ?? "");
    res.end("body of the upstream");
  };
  const files = `--cert ${folder}/cert.pem --key ${folder}/key.pem`;
  command = new Command(`${upstream.url} --log off --port 0 ${files}`, [
    "--import",
    join(folder, "counter.mjs"),
  ]);
  port = Number(new URL(await command.origin()).port);
});
afterAll(async () => {
  await command.kill();
  rmSync(folder, { recursive: true });
});

async function countSessions(): Promise<number> {
  command.stderr = "";
  command.child.kill("SIGUSR2");
  await until(() => /sessions: \d+\n/.test(command.stderr), "the count");
  return Number(/\d+/.exec(command.stderr)?.[0]);
}

async function open(settings: Buffer = frame(SETTINGS, 0, 0)): Promise<RawConnection> {
  const socket = connect({ port, host: "127.0.0.1", ca: cert, ALPNProtocols: ["h2"] });
  const connection = new RawConnection(socket, undefined, "none");
  await within(once(socket, "secureConnect"), "the handshake");
  socket.write(PREFACE);
  connection.send(settings);
  return connection;
}

/** Returns the HEADERS frame of a request. */
function requestHead(id: number, method: string, flags: number, ...more: Buffer[]): Buffer {
  const fields = [
    field(":method", method),
    field(":scheme", "https"),
    field(":authority", "proxy.test"),
    field(":path", `/${id}`),
  ];
  return frame(HEADERS, END_HEADERS | flags, id, Buffer.concat([...fields, ...more]));
}

/** Expects that the command still serves other clients. */
async function expectService(): Promise<void> {
  const session = connectHttp2(`https://127.0.0.1:${port}`, { ca: cert });
  expect(await text(session.request({ ":path": "/after" }))).toBe("body of the upstream");
  session.destroy();
}

test("CVE-2026-33555: a request that ends with its header section but has a Content-Length is reset, and not forwarded", async () => {
  paths = [];
  const connection = await open();
  connection.send(requestHead(1, "POST", END_STREAM, field("content-length", "10")));
  const isOver = (): boolean =>
    connection.has(RST_STREAM) || connection.has(GOAWAY) || connection.isClosed;
  await until(isOver, "the reset");
  await expectService();
  expect(paths).toEqual(["/after"]);
  connection.socket.destroy();
});

test("CVE-2026-71324: CONNECT is refused, and its data is not read as a request", async () => {
  paths = [];
  const connection = await open();
  const target = Buffer.concat([field(":method", "CONNECT"), field(":authority", "evil.test:80")]);
  const data = Buffer.from("GET /smuggled HTTP/1.1\r\nHost: internal\r\n\r\n");
  connection.send(frame(HEADERS, END_HEADERS, 1, target), frame(DATA, 0, 1, data));
  const isRefused = (): boolean => connection.has(HEADERS) || connection.has(RST_STREAM);
  await until(isRefused, "the refusal");
  connection.send(frame(DATA, END_STREAM, 1, data));
  await expectService();
  expect(paths).toEqual(["/after"]);
  connection.socket.destroy();
});

test("CVE-2026-47774: fields that HPACK expands, and responses that a zero window holds back, take bounded memory", async () => {
  // A field of 4 KB enters the dynamic table. Each further byte of the block encodes the same field (RFC 7541 §6.1, §6.2.1).
  const indexed = Buffer.concat([
    Buffer.from([0x40, 6]),
    Buffer.from("x-bomb"),
    Buffer.from([0x7f, 0x81, 0x1e]),
    Buffer.alloc(4000, "b"),
  ]);
  const { pid = 0 } = command.child;
  const before = residentBytes(pid);
  // SETTINGS_INITIAL_WINDOW_SIZE 0: no byte of a response may be sent (RFC 9113 §6.9.2).
  const held = frame(SETTINGS, 0, 0, Buffer.from([0, 4, 0, 0, 0, 0]));
  const connections = await Promise.all(Array.from({ length: 8 }, () => open(held)));
  for (const connection of connections) {
    connection.send(requestHead(1, "GET", END_STREAM, indexed));
    for (let id = 3; id < 200; id += 2) {
      connection.send(requestHead(id, "GET", END_STREAM, Buffer.alloc(12_000, 0xbe)));
    }
  }
  await expectService();
  // Expanded, all fields together are more than 30 GB.
  expect(residentBytes(pid) - before).toBeLessThan(160 * MIB);
  for (const { socket } of connections) socket.destroy();
  await expectService();
});

test.runIf(endsBrokenSessions)(
  "CVE-2026-21714, CVE-2026-48937: clients that overflow their windows leave no session behind",
  async () => {
    await expectService();
    const before = await countSessions();
    const overflow = frame(WINDOW_UPDATE, 0, 0, uint32(0x7fff_ffff));
    for (let round = 0; round < 10; round++) {
      const connections = await Promise.all(Array.from({ length: 20 }, () => open()));
      // Send 10,000 updates in total, each beyond the largest window (RFC 9113 §6.9.1), half of them on connections
      // with a request.
      for (const [i, connection] of connections.entries()) {
        if (i % 2 === 1) connection.send(requestHead(1, "POST", 0));
        connection.send(...Array.from({ length: 50 }, () => overflow));
      }
      const isOver = ({ isClosed, frames }: RawConnection): boolean =>
        isClosed || frames.some(({ type }) => type === GOAWAY);
      await until(() => connections.every(isOver), "the end of each connection");
      for (const { socket } of connections) socket.destroy();
    }
    await expectService();
    // The command may take a moment to notice that the last connections are closed.
    let left = await countSessions();
    for (let tries = 0; tries < 20 && left > before + 5; tries++) {
      await pause(300);
      left = await countSessions();
    }
    expect(left - before).toBeLessThan(6);
  },
);
