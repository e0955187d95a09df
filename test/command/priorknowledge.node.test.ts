/** HTTP/2 with prior knowledge on Node's HTTP/1.1 server: how it recognizes the connection preface. */
import { createServer, type Server } from "node:http";
import { connect as connectHttp2, type ServerHttp2Session } from "node:http2";
import { connect, type Socket } from "node:net";
import { text } from "node:stream/consumers";
import { once } from "node:events";
import { afterEach, describe, expect, test } from "vitest";
import { answerRefusals } from "../../command/limits/ownanswers.ts";
import { acceptHttp2 } from "../../command/serve/priorknowledge.ts";
import {
  DATA,
  END_HEADERS,
  END_STREAM,
  field,
  frame,
  HEADERS,
  PREFACE,
  RawConnection,
  SETTINGS,
} from "../helpers/frames.ts";
import { listen } from "../helpers/serve.ts";
import { until, within } from "../helpers/wait.ts";

let server: Server;
let port = 0;
let accepted: Socket[] = [];
let sessions: ServerHttp2Session[] = [];
/** The statuses of the requests that were refused. */
let refused: number[] = [];
/** The codes of the errors that the HTTP/1.1 server reports. */
let errors: (string | undefined)[] = [];

async function start(headersTimeout = 0): Promise<void> {
  [accepted, sessions, refused, errors] = [[], [], [], []];
  server = createServer({ headersTimeout, connectionsCheckingInterval: 20 }, (req, res) => {
    res.setHeader("version", req.httpVersion);
    res.end(`${req.method} ${req.url}`);
  });
  server.on("connection", (socket) => accepted.push(socket));
  server.on("session", (session: ServerHttp2Session) => sessions.push(session));
  server.on("clientError", ({ code }: { code?: string }) => errors.push(code));
  const takes = acceptHttp2(server, {});
  answerRefusals(server, headersTimeout, ({ status }) => refused.push(status), takes);
  port = await listen(server);
}

afterEach(async () => {
  for (const socket of accepted) socket.destroy();
  server.close();
  await once(server, "close");
});

function requestHead(path: string): Buffer {
  const fields = [
    field(":method", "GET"),
    field(":scheme", "http"),
    field(":authority", "a"),
    field(":path", path),
  ];
  return frame(HEADERS, END_HEADERS | END_STREAM, 1, Buffer.concat(fields));
}

/** The bytes of a connection with one request. */
const WHOLE = Buffer.concat([Buffer.from(PREFACE), frame(SETTINGS, 0, 0), requestHead("/whole")]);

/** Sends each part after the server has read the previous one. Returns the body of the response. */
async function send(parts: readonly Uint8Array[]): Promise<string> {
  const before = accepted.length;
  const client = new RawConnection(connect(port, "127.0.0.1").setNoDelay(), undefined, "none");
  await until(() => accepted.length > before, "the connection");
  const socket = accepted.at(-1) as Socket;
  let sent = 0;
  for (const part of parts) {
    client.send(Buffer.from(part));
    sent += part.length;
    await until(() => socket.bytesRead === sent, "the bytes");
  }
  await until(() => client.has(DATA), "the response");
  client.socket.end();
  await until(() => client.isClosed && socket.destroyed, "the end of the connection");
  return client.frames.find(({ type }) => type === DATA)?.payload.toString() ?? "";
}

/** Sends bytes. Returns everything that the server sends until it closes the connection. */
async function answerTo(bytes: string, ends = false): Promise<string> {
  const socket = connect(port, "127.0.0.1");
  if (ends) socket.end(bytes, "latin1");
  else socket.write(bytes, "latin1");
  const answer = await within(text(socket), `the answer to ${JSON.stringify(bytes)}`);
  expect(sessions).toEqual([]);
  return answer;
}

describe("a connection that begins with the preface speaks HTTP/2", () => {
  test("wherever its bytes are split into reads", async () => {
    await start();
    for (let at = 1; at <= WHOLE.length; at++) {
      expect(await send([WHOLE.subarray(0, at), WHOLE.subarray(at)]), `cut at ${at}`).toBe(
        "GET /whole",
      );
    }
    expect(sessions).toHaveLength(WHOLE.length);
    expect(errors).toEqual(sessions.map(() => "HPE_PAUSED_H2_UPGRADE"));
    expect(refused).toEqual([]);
  });

  test("if each byte arrives alone", async () => {
    await start();
    expect(await send(Array.from(WHOLE, (byte) => Uint8Array.of(byte)))).toBe("GET /whole");
  });

  test("and `headersTimeout` of the HTTP/1.1 server does not end it", async () => {
    await start(2000);
    const session = connectHttp2(`http://127.0.0.1:${port}`);
    expect(await text(session.request({ ":path": "/first" }))).toBe("GET /first");
    await until(() => errors.includes("ERR_HTTP_REQUEST_TIMEOUT"), "the timeout");
    const stream = session.request({ ":path": "/second" });
    const [head] = (await once(stream, "response")) as [object];
    expect(head).toMatchObject({ ":status": 200, version: "2.0" });
    expect(await text(stream)).toBe("GET /second");
    session.close();
    await within(once(session, "close"), "the end");
    await until(() => accepted.every(({ destroyed }) => destroyed), "the end of the connection");
    expect(refused).toEqual([]);
  });

  test("and its requests get 100 (Continue) if the server has no listener for `checkContinue`", async () => {
    await start();
    const session = connectHttp2(`http://127.0.0.1:${port}`);
    const stream = session.request({ ":method": "POST", expect: "100-continue" });
    await within(once(stream, "continue"), "100");
    stream.end("body");
    expect(await text(stream)).toBe("POST /");
    session.destroy();
  });
});

describe("other bytes get 400", () => {
  test.each([
    ["the preface after an empty line", `\r\n${PREFACE}`],
    ["another path", PREFACE.replace("*", "/")],
    ["header fields", `PRI * HTTP/2.0\r\nHost: a\r\n\r\nSM\r\n\r\n`],
    ["the method PRI in HTTP/1.1", `PRI * HTTP/1.1\r\nHost: a\r\n\r\n`],
    ["line ends without CR", PREFACE.replaceAll("\r", "")],
  ])("%s", async (_, bytes) => {
    await start();
    expect(await answerTo(bytes)).toMatch(/^HTTP\/1\.1 400 /);
    expect(refused).toEqual([400]);
  });

  test("a preface with one wrong byte", async () => {
    await start();
    for (let at = 0; at < PREFACE.length; at++) {
      const wrong = `${PREFACE.slice(0, at)}\0${PREFACE.slice(at + 1)}`;
      expect(await answerTo(wrong), JSON.stringify(wrong)).toMatch(/^HTTP\/1\.1 400 /);
    }
  });

  test("a preface that ends too early", async () => {
    await start();
    for (let at = 1; at < PREFACE.length; at++) {
      expect(await answerTo(PREFACE.slice(0, at), true), `${at} bytes`).toMatch(/^HTTP\/1\.1 400 /);
    }
  });
});

test("a preface after an HTTP/1.1 request ends the connection", async () => {
  await start();
  const pipelined = await answerTo(`GET /first HTTP/1.1\r\nHost: a\r\n\r\n${PREFACE}`);
  expect(pipelined).toMatch(/^HTTP\/1\.1 200 [^]*\r\n\r\nGET \/first$/);
  const client = connect(port, "127.0.0.1");
  client.write("GET /first HTTP/1.1\r\nHost: a\r\n\r\n");
  await once(client, "readable");
  client.write(PREFACE);
  expect(await within(text(client), "the end")).toMatch(/GET \/firstHTTP\/1\.1 400 /);
  expect(sessions).toEqual([]);
});

test("an incomplete preface gets 408 after `headersTimeout`", async () => {
  // The timeout is long, because bytes that arrive after the 408 would reset the connection, and the client could lose the 408.
  await start(2000);
  const parts = Array.from(PREFACE, (_, at) => PREFACE.slice(0, at));
  const answers = await Promise.all(parts.map((part) => answerTo(part)));
  for (const [at, answer] of answers.entries()) {
    expect(answer, `${at} bytes`).toMatch(/^HTTP\/1\.1 408 /);
  }
});
