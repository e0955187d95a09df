/**
 * Opens WebSockets in Chromium through the command with a certificate. The browser sends them over HTTP/2 (RFC 8441), on the
 * connection of the page. It checks compression, a subprotocol, large messages, the close code, and a refused handshake.
 *
 *     npm run test:browser
 *
 * It needs Chromium (`CHROMIUM`, or `/usr/bin/chromium`), and is skipped without it.
 */
import assert from "node:assert/strict";
import { once } from "node:events";
import { existsSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { createServer, type IncomingHttpHeaders } from "node:http";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { chromium } from "playwright-core";
import { WebSocketServer } from "ws";
import { makeCertificate } from "../helpers/certificate.ts";
import { startProgram } from "../helpers/program.ts";
import { listen } from "../helpers/serve.ts";

const executablePath = process.env["CHROMIUM"] ?? "/usr/bin/chromium";
if (!existsSync(executablePath)) {
  console.log(`skipped: there is no ${executablePath}; install Chromium, or set CHROMIUM`);
  process.exit(0);
}

const handshakes: IncomingHttpHeaders[] = [];
const closes: number[] = [];
const upstream = createServer((_, res) => res.end("<!doctype html><title>page</title>"));
const sockets = new WebSocketServer({ noServer: true, perMessageDeflate: true });
upstream.on("upgrade", (req, socket, head) => {
  handshakes.push(req.headers);
  if (req.url === "/refused") return void socket.end("HTTP/1.1 403 Forbidden\r\n\r\n");
  return sockets.handleUpgrade(req, socket, head, (each) => sockets.emit("connection", each));
});
sockets.on("connection", (socket) => {
  socket.on("message", (data, isBinary) => socket.send(data, { binary: isBinary }));
  socket.on("close", (code) => closes.push(code));
});

const folder = mkdtempSync(join(tmpdir(), "fetchway-"));
const { cert, key } = await makeCertificate();
writeFileSync(join(folder, "cert.pem"), cert);
writeFileSync(join(folder, "key.pem"), key);
const command = startProgram("node", [
  "command/main.ts",
  `http://127.0.0.1:${await listen(upstream)}`,
  `--cert=${join(folder, "cert.pem")}`,
  `--key=${join(folder, "key.pem")}`,
  "--port=0",
  "--via=edge",
]);
const [, origin = ""] = await command.printed(/listens on (https:\S+) /);
const browser = await chromium.launch({ executablePath, args: ["--no-sandbox"] });

/** Runs in the page. */
async function useSocket(url: string): Promise<object> {
  const socket = new WebSocket(url, ["one", "two"]);
  socket.binaryType = "arraybuffer";
  const event = (name: string): Promise<Event> =>
    new Promise((resolve) => socket.addEventListener(name, resolve, { once: true }));
  await event("open");
  const ask = async (data: string | Uint8Array<ArrayBuffer>): Promise<unknown> => {
    const answered = event("message");
    socket.send(data);
    return ((await answered) as MessageEvent).data;
  };
  const text = await ask("x".repeat(300_000));
  const bytes = await ask(new Uint8Array(300_000).fill(7));
  const closed = event("close");
  socket.close(4001, "bye");
  const { code, reason, wasClean } = (await closed) as CloseEvent;
  const { protocol, extensions } = socket;
  const sizes = [(text as string).length, (bytes as ArrayBuffer).byteLength];
  return { protocol, extensions, sizes, code, reason, wasClean };
}

try {
  const page = await browser.newPage({ ignoreHTTPSErrors: true });
  await page.goto(origin);
  const seen = await page.evaluate(useSocket, `${origin.replace("https:", "wss:")}/chat`);
  assert.deepEqual(seen, {
    protocol: "one",
    extensions: "permessage-deflate",
    sizes: [300_000, 300_000],
    code: 4001,
    reason: "bye",
    wasClean: true,
  });
  assert.deepEqual(closes, [4001]);
  const refused = await page.evaluate(
    async (url) => {
      const socket = new WebSocket(url);
      return new Promise<number>((resolve) =>
        socket.addEventListener("close", ({ code }) => resolve(code)),
      );
    },
    `${origin.replace("https:", "wss:")}/refused`,
  );
  assert.equal(refused, 1006);
  const versions = handshakes.map(({ via }) => via);
  assert.deepEqual(versions, ["2.0 edge", "2.0 edge"], "Chromium has used HTTP/2");
  console.log("Chromium opens WebSockets over HTTP/2, and closes them");
} finally {
  await browser.close();
  const ended = once(upstream, "close");
  command.signal("SIGTERM");
  await command[Symbol.asyncDispose]();
  upstream.close().closeAllConnections();
  await ended;
  rmSync(folder, { recursive: true });
}
