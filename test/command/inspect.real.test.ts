/** What `--inspect` shows equals what an upstream receives from the command with the same flags and config file. */
import { once } from "node:events";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { createServer as createHttp2Server } from "node:http2";
import { connect, createServer, type Socket } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { connect as connectTls } from "node:tls";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { makeCertificate } from "../helpers/certificate.ts";
import { listen } from "../helpers/serve.ts";
import { within } from "../helpers/wait.ts";
import { Command, programs } from "./_command.ts";

const folder = mkdtempSync(join(tmpdir(), "fetchway-"));
const [cert, key] = [join(folder, "cert.pem"), join(folder, "key.pem")];

/** The lines of the last request that an upstream has received: the request line, and the fields. */
let received: string[] = [];
const plain = createServer((socket) => {
  let text = "";
  socket
    .on("error", () => {})
    .on("data", (data: Buffer) => {
      text += data.toString("latin1");
      const end = text.indexOf("\r\n\r\n");
      if (end < 0) return;
      const lines = text.slice(0, end).split("\r\n");
      if (lines[0]?.startsWith("GET /check ") !== true) received = lines;
      socket.end("HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
    });
});
const http2 = createHttp2Server();
http2.on("stream", (stream, headers, _flags, raw) => {
  received = [`${headers[":method"]} ${headers[":path"]} HTTP/2`];
  for (let i = 0; i < raw.length; i += 2) {
    if (!/^:(?:method|path|scheme)$/.test(raw[i] ?? "")) received.push(`${raw[i]}: ${raw[i + 1]}`);
  }
  stream.respond({ ":status": 200 }, { endStream: true });
});
let target = "";
let http2Target = "";
beforeAll(async () => {
  const own = await makeCertificate();
  writeFileSync(cert, own.cert);
  writeFileSync(key, own.key);
  target = `http://127.0.0.1:${await listen(plain)}`;
  http2Target = `http://127.0.0.1:${await listen(http2)}`;
});
afterAll(() => {
  plain.close();
  http2.close();
  rmSync(folder, { recursive: true });
});

interface Case {
  title: string;
  /** The text of the config, in which `TARGET`, `CERT` and other placeholders are replaced. */
  config: string;
  flags?: string;
  /** The value of `--inspect`. */
  request?: string;
  fields?: string[];
}

const UPGRADE = [
  "Connection: Upgrade",
  "Upgrade: websocket",
  "Sec-WebSocket-Version: 13",
  "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==",
];
const FORWARDED = [
  "X-Forwarded-For: 192.0.2.1",
  "X-Forwarded-Proto: https",
  "Forwarded: for=192.0.2.1;proto=https",
  "X_Forwarded_For: 1.2.3.4",
];
const TLS = "--cert CERT --key KEY";
const INSIDE = `server: { cert: "CERT", key: "KEY" }`;

const cases: Case[] = [
  { title: "a path", config: `target: "TARGET"` },
  { title: "a URL", config: `target: "TARGET"`, request: "http://shop.example:8080/a%2Fb?c" },
  { title: "a host alone", config: `target: "TARGET"`, request: "HEAD shop.example" },
  {
    title: "https, with the certificate in flags",
    config: `target: "TARGET"`,
    flags: TLS,
    request: "https://shop.example/a",
  },
  { title: "a path, with the certificate in flags", config: `target: "TARGET"`, flags: TLS },
  {
    title: "https, with the certificate in the config",
    config: `target: "TARGET", ${INSIDE}`,
    request: "https://shop.example/a",
  },
  { title: "a path, with the certificate in the config", config: `target: "TARGET", ${INSIDE}` },
  { title: "https without a certificate", config: `target: "TARGET"`, request: "https://a.test/" },
  {
    title: "Forwarded",
    config: `target: "TARGET", xfwd: "forwarded", via: "edge", ${INSIDE}`,
    fields: FORWARDED,
  },
  { title: "fields about another client", config: `target: "TARGET"`, fields: FORWARDED },
  {
    title: "fields of a trusted proxy",
    config: `target: "TARGET", trustProxy: ["loopback"], ${INSIDE}`,
    fields: FORWARDED,
  },
  { title: "no forwarding fields", config: `target: "TARGET", xfwd: false`, flags: TLS },
  {
    title: "the client's Host",
    config: `target: "TARGET", changeOrigin: false`,
    request: "http://shop.example/a",
  },
  {
    title: "the options of a route",
    config: `headers: { "x-all": "1" }, via: "edge", routes: [
      { match: "shop.example/api", target: "TARGET/base", stripPrefix: "/api",
        headers: { "x-own": "2", accept: null }, filterHeaders: ["cookie"], xfwd: false },
      { match: "/", target: "http://127.0.0.1:1" }]`,
    request: "PUT http://shop.example/api/x?y",
    fields: [
      "Accept: */*",
      "Cookie: a=b",
      "X-Two: 1",
      "X-Two: 2",
      "TE: trailers",
      "Connection: X-Two, TE",
    ],
  },
  {
    title: "hooks",
    config: `target: "TARGET", ${INSIDE}, clientAddress: () => "192.0.2.9", onRequest(draft, request) {
      draft.headers.set("x-url", request.url);
      draft.path += "?hook";
    }`,
  },
  { title: "dot segments", config: `target: "TARGET"`, request: "/a/../b/./%41" },
  { title: "a POST without a body", config: `target: "TARGET"`, request: "POST /a" },
  {
    title: "connections that are not kept",
    config: `target: "TARGET", pool: { keepAlive: false }`,
  },
  { title: "a WebSocket", config: `target: "TARGET", ${INSIDE}`, fields: UPGRADE },
  {
    title: "a WebSocket with dot segments and repeated fields",
    config: `target: "TARGET", forwardHeaders: ["forwarded"]`,
    request: "/a/../b",
    fields: [...UPGRADE, "X-Two: 1", "X-Two: 2", "Forwarded: for=192.0.2.1"],
  },
  {
    title: "an upstream that speaks HTTP/2",
    config: `target: "HTTP2", pool: { http2: true }, ${INSIDE}`,
    request: "POST https://shop.example/a",
    fields: ["X-Two: 1", "X-Two: 2", "Cookie: a=b"],
  },
  { title: "a target that speaks HTTP/2", config: `target: { url: "HTTP2", http2: true }` },
  {
    title: "a server on ::1",
    config: `target: "TARGET", xfwd: "forwarded", server: { host: "::1" }`,
  },
  { title: "a server on all addresses", config: `target: "TARGET", server: { host: "0.0.0.0" }` },
  {
    title: "a server on a socket",
    config: `target: "TARGET", trustProxy: ["loopback"], server: { host: "unix:SOCKET" }`,
    fields: FORWARDED,
  },
  {
    title: "a list of one upstream, with checks and lookups",
    config: `target: ["TARGET"], balance: { check: { path: "/check", interval: 100000 } }`,
    flags: "--resolve",
  },
];

/** The titles of the cases that also run on Bun and Deno. */
const EVERYWHERE = new Set(["a path", "https, with the certificate in the config", "a WebSocket"]);

const runs = Object.keys(programs).flatMap((runtime) =>
  cases.flatMap((each, index) =>
    runtime === "node" || EVERYWHERE.has(each.title) ? [{ ...each, runtime, index }] : [],
  ),
);

/** Writes the config of a case, and returns the flags of the case. */
function prepare({ config, flags = "" }: Case, name: string): string {
  const fill = (text: string): string =>
    text
      .replaceAll("TARGET", target)
      .replaceAll("HTTP2", http2Target)
      .replaceAll("CERT", cert)
      .replaceAll("KEY", key)
      .replaceAll("SOCKET", join(folder, `${name}.sock`));
  const path = join(folder, `${name}.mjs`);
  writeFileSync(path, fill(`export default { ${config} };\n`));
  return fill(`--config ${path} ${flags}`);
}

/** Starts the command, sends the request to it, and returns the status of the response and the port of the command. */
async function send(
  { request = "/", fields = [] }: Case,
  line: string,
  program: readonly string[],
): Promise<{ status: string; port: string }> {
  const command = new Command(`${line} --log off`, [], program);
  try {
    const [, origin = ""] = await command.says(/^fetchway listens on (\S+) .*\n/);
    const path = /^unix:(.*)/.exec(origin)?.[1];
    const url = new URL(path === undefined ? origin : "http://localhost");
    const near = url.host.replace("0.0.0.0", "127.0.0.1");
    const [, method = "GET", , host = near, rest = "/"] =
      /^(?:([A-Z]+) )?(?:(?:(https?):\/\/)?([^/]+))?(\/.*)?$/.exec(request) ?? [];
    const hostname = new URL(`http://${near}`).hostname.replace(/[[\]]/g, "");
    const to = path === undefined ? { host: hostname, port: Number(url.port) } : { path };
    const socket: Socket =
      url.protocol === "https:"
        ? connectTls({ ...to, rejectUnauthorized: false, ALPNProtocols: ["http/1.1"] })
        : connect(to as never);
    const lines = [`${method} ${rest} HTTP/1.1`, `Host: ${host}`, ...fields];
    socket.write(`${lines.join("\r\n")}\r\n\r\n`);
    const [data] = (await within(once(socket, "data"), "a response")) as [Buffer];
    socket.destroy();
    return { status: data.toString("latin1").slice(9, 12), port: url.port };
  } finally {
    await command.kill();
  }
}

/** Runs `--inspect`, and returns its output. */
async function inspect(
  { request = "/", fields = [] }: Case,
  line: string,
  program: readonly string[],
): Promise<string> {
  const flags = fields.map((field) => `-H "${field}"`).join(" ");
  const command = new Command(`${line} --inspect "${request}" ${flags}`, [], program);
  expect(await within(command.exit, "the end")).toBe(0);
  // Deno prints a warning about requests that are upgraded.
  if (program !== programs.deno) expect(command.stderr).toBe("");
  return command.stdout;
}

/** Returns the request line and the fields that are shown. */
function linesOf(text: string): string[] {
  const rows = /\nroute .*\n\n([^]*?)(?:\n\n|\n?$)/.exec(text)?.[1]?.split("\n") ?? [];
  return rows.flatMap((row) => /^ {2}(\S.*?)(?: {2,}.*)?$/.exec(row)?.[1] ?? []);
}

describe("--inspect shows what the upstream receives", () => {
  test.each(runs)("on $runtime: $title", async (each) => {
    const program = programs[each.runtime as keyof typeof programs];
    const line = prepare(each, `case${each.index}-${each.runtime}`);
    received = [];
    const isSocket = each.config.includes("unix:");
    const { port } = await send(each, isSocket ? line : `${line} --port 0`, program);
    expect(received.length).toBeGreaterThan(2);
    const text = await inspect(each, isSocket ? line : `${line} --port ${port}`, program);
    // On Bun and Deno, the proxy makes the handshake itself, with a random key.
    const compared = (lines: string[]): string[] =>
      lines.filter((row) => each.runtime === "node" || !row.startsWith("sec-websocket-key: "));
    expect(compared(linesOf(text))).toEqual(compared(received));
  });
});

test.each<[status: number, each: Omit<Case, "title">]>([
  [
    204,
    {
      config: `target: "TARGET", server: { cors: true }`,
      request: "OPTIONS /",
      fields: ["Origin: http://a.test", "Access-Control-Request-Method: PUT"],
    },
  ],
  [
    431,
    {
      config: `target: "TARGET", server: { maxHeaderSize: 300 }`,
      fields: [`X: ${"a".repeat(400)}`],
    },
  ],
  [431, { config: `target: "TARGET", server: { maxHeadersCount: 2 }`, fields: ["A: 1", "B: 2"] }],
  [404, { config: `routes: [{ match: "/a", target: "TARGET" }]`, request: "/b" }],
  [405, { config: `target: "TARGET"`, request: "TRACE /" }],
])("--inspect shows the same status %i as the client gets: %j", async (status, each) => {
  const refused = { title: "", ...each };
  const line = `${prepare(refused, `refused${status}`)} --port 0`;
  const { status: actual } = await send(refused, line, programs.node);
  expect(actual).toBe(String(status));
  expect(await inspect(refused, line, programs.node)).toContain(`the client gets ${status}: `);
});

test("--inspect says if the server does not speak the scheme of the request", async () => {
  const each = { title: "", config: `target: "TARGET"` };
  const line = prepare(each, "scheme");
  const plainServer = await inspect({ ...each, request: "https://a.test/" }, line, programs.node);
  expect(plainServer).toMatch(/^not over https: the server has no certificate \(--cert\)$/m);
  const tls = prepare({ ...each, flags: TLS }, "scheme");
  const secure = await inspect({ ...each, request: "http://a.test/" }, tls, programs.node);
  expect(secure).toMatch(
    /over https; nothing is sent\nnot over http: the server has a certificate/,
  );
  const redirected = await inspect(
    { ...each, request: "http://a.test/" },
    `${tls} --redirect-http 0`,
    programs.node,
  );
  expect(redirected).toContain("\nnot over http: the client gets 308 to https (--redirect-http)\n");
});

test("--inspect refuses a certificate with which the server could not start", async () => {
  const line = prepare({ title: "", config: `target: "TARGET"` }, "wrong");
  const command = new Command(`${line} --cert ${key} --key ${key} --inspect /`);
  expect(await command.refusal()).toMatch(/--cert .* there is no certificate in PEM/);
});
