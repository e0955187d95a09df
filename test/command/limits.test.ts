/** The command's server against hostile clients, and against clients that are only slow. */
import { once } from "node:events";
import { createServer, type IncomingMessage, type ServerResponse } from "node:http";
import { type ClientHttp2Session, connect as connectHttp2 } from "node:http2";
import { connect, type Socket } from "node:net";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { text } from "node:stream/consumers";
import { connect as connectTls } from "node:tls";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { WebSocket, WebSocketServer } from "ws";
import { maxTurnedAway } from "../../command/limits/clientconnections.ts";
import { makeCertificate } from "../helpers/certificate.ts";
import { Command } from "./_command.ts";
import { holdIdle } from "../idle/_holdidle.ts";
import { listen } from "../helpers/serve.ts";
import { patience, pause, until, within } from "../helpers/wait.ts";
import { choosesUpgrades } from "../hosts/_node.ts";

const CHUNK = Buffer.alloc(65_536, "x");

/** Writes until the buffers are full, so that the client has to read. */
function flood(res: ServerResponse): void {
  while (res.write(CHUNK));
}

/**
 * A wait in milliseconds. It is longer than all time limits except `--send-timeout`, so a test that waits this long shows that
 * none of these applies.
 */
const LONGER_THAN_LIMITS = 3_000;

/** The number of chunks in a body that does not fit into the kernel's buffers. */
const LARGE = 300;

/** How each request ended at the upstream, by path. */
const ends = new Map<string, string>();

const server = createServer((req, res) => void answer(req, res));
server.on("checkContinue", (req: IncomingMessage, res: ServerResponse) => {
  setTimeout(() => {
    res.writeContinue();
    void answer(req, res);
  }, LONGER_THAN_LIMITS);
});
const sockets = new WebSocketServer({ server });
sockets.on("connection", (socket, req) => {
  if (req.url?.startsWith("/flood") === true) {
    const path = req.url;
    socket.on("close", () => ends.set(path, "closed"));
    for (let n = 0; n < LARGE; n++) socket.send(CHUNK);
  }
  socket.on("message", (data) => socket.send(data, { binary: false }));
});

async function answer(req: IncomingMessage, res: ServerResponse): Promise<void> {
  const path = req.url ?? "";
  ends.set(path, "begun");
  req.on("error", () => {});
  res.on("close", () => ends.set(path, res.writableFinished ? "answered" : "closed"));
  switch (path.replace(/\?.*/, "")) {
    case "/endless":
      res.on("drain", () => flood(res));
      return flood(res);
    case "/late":
      await pause(LONGER_THAN_LIMITS);
      return void res.end("late");
    case "/events":
      res.writeHead(200, { "content-type": "text/event-stream" }).write("data: 1\n\n");
      await pause(LONGER_THAN_LIMITS);
      return void res.end("data: 2\n\n");
    case "/unread":
      await pause(LONGER_THAN_LIMITS);
      return void res.end(`got ${(await text(req).catch(() => "broken")).length}`);
    case "/early":
      // Answers while the request's body is still open.
      res.write("begun ");
      return void res.end(await text(req).catch(() => "broken"));
    default:
      res.end(`got ${(await text(req).catch(() => "broken")).length}`);
  }
}

/**
 * The limits leave a client on a loaded machine enough time to send its part, TLS handshake included. Most tests of this
 * file wait at the same time, so long limits cost little.
 */
const LIMITS =
  "--headers-timeout 2500 --body-timeout 2500 --send-timeout 4000 --keep-alive-timeout 2500 " +
  "--max-header-size 2k --max-headers-count 20 --port 0";
const folder = mkdtempSync(join(tmpdir(), "fetchway-"));
const { cert, key } = await makeCertificate();
let plain: Command;
let secure: Command;
let target = "";
let port = 0;
let securePort = 0;

beforeAll(async () => {
  writeFileSync(join(folder, "cert.pem"), cert);
  writeFileSync(join(folder, "key.pem"), key);
  target = `http://127.0.0.1:${await listen(server)}`;
  plain = new Command(`${target} ${LIMITS}`);
  secure = new Command(`${target} ${LIMITS} --cert ${folder}/cert.pem --key ${folder}/key.pem`);
  port = Number(new URL(await plain.origin()).port);
  securePort = Number(new URL(await secure.origin()).port);
});
afterAll(async () => {
  await Promise.all([plain.kill(), secure.kill()]);
  server.close().closeAllConnections();
  rmSync(folder, { recursive: true });
});

/** Resolves when a stream is closed, with or without an error. */
function closeOf(stream: NodeJS.EventEmitter): Promise<void> {
  stream.on("error", () => {});
  return new Promise((resolve) => stream.once("close", () => resolve()));
}

/** A client that sends raw bytes, which need not be valid HTTP. */
class Raw {
  received = "";
  readonly socket: Socket;
  readonly closed: Promise<unknown>;

  constructor(socket: Socket = connect(port, "127.0.0.1")) {
    this.socket = socket;
    this.closed = new Promise((resolve) => socket.once("close", resolve));
    socket.on("error", () => {});
    socket.on("data", (data: Buffer) => (this.received += data.toString("latin1")));
  }

  /** Sends one byte after another until the connection is closed. */
  async trickle(bytes: string, wait: number): Promise<void> {
    for (const byte of bytes) {
      if (this.socket.destroyed) return;
      this.socket.write(byte);
      await pause(wait);
      // Read an answer that has arrived: the next write may fail, and Node would then drop the answer.
      await new Promise(setImmediate);
    }
  }

  async until(what: RegExp): Promise<void> {
    await until(() => what.test(this.received) || this.socket.destroyed, String(what));
    expect(this.received).toMatch(what);
  }
}

function overTls(): Socket {
  return connectTls({ port: securePort, host: "127.0.0.1", ca: cert, ALPNProtocols: ["http/1.1"] });
}

const head = (line: string, ...fields: string[]): string =>
  [`${line} HTTP/1.1`, "Host: a", ...fields, "", ""].join("\r\n");

describe.concurrent.each([
  ["HTTP", () => connect(port, "127.0.0.1")],
  ["HTTPS", overTls],
])("over %s, the server disconnects", (name, open) => {
  test("a client whose header section trickles, with 408", async () => {
    const client = new Raw(open());
    void client.trickle(head("GET /", `X: ${"a".repeat(1000)}`), 20);
    await within(client.closed, "the end");
    expect(client.received).toMatch(/^HTTP\/1\.1 408 /);
  });

  test("a client whose body stops, with 408, and the upstream sees no complete request", async () => {
    const path = `/slow-body-${name}`;
    const client = new Raw(open());
    client.socket.write(head(`POST ${path}`, "Content-Length: 100"));
    client.socket.write("abc");
    await within(client.closed, "the end");
    expect(client.received).toMatch(/^HTTP\/1\.1 408 /);
    await until(() => ends.get(path) === "closed", "the end at the upstream");
  });

  test("a client that does not read the response, and closes the upstream's connection", async () => {
    const path = `/endless?${name}`;
    const client = new Raw(open());
    client.socket.pause();
    client.socket.write(head(`GET ${path}`));
    await until(() => ends.get(path) === "closed", "the end at the upstream");
    client.socket.resume();
    await within(client.closed, "the end");
  });

  test("a client that does not read its WebSocket, and closes the upstream's WebSocket", async () => {
    const socket = new WebSocket(`ws://a/flood?${name}`, {
      createConnection: () => open() as never,
    });
    socket.on("error", () => {});
    await within(once(socket, "open"), "the opening");
    socket.pause();
    await until(() => ends.get(`/flood?${name}`) === "closed", "the end at the upstream");
    socket.terminate();
  });

  test("a client that sends nothing", async () => {
    await within(new Raw(open()).closed, "the end");
  });

  test("a client that sends no second request on its connection", async () => {
    const client = new Raw(open());
    client.socket.write(head("GET /"));
    await within(client.closed, "the end");
    expect(client.received).toMatch(/^HTTP\/1\.1 200 /);
  });

  test("a client whose header section has too many bytes or fields, with 431", async () => {
    const large = new Raw(open());
    large.socket.write(head("GET /", `X: ${"a".repeat(3000)}`));
    const many = new Raw(open());
    many.socket.write(head("GET /many", ...Array.from({ length: 20 }, (_, n) => `X${n}: a`)));
    await within(Promise.all([large.closed, many.closed]), "the end");
    expect([large.received, many.received].map((each) => each.slice(0, 12))).toEqual([
      "HTTP/1.1 431",
      "HTTP/1.1 431",
    ]);
    const upgrade = new Raw(open());
    const fields = Array.from({ length: 18 }, (_, n) => `X${n}: a`);
    upgrade.socket.write(head("GET /many", "Connection: upgrade", "Upgrade: websocket", ...fields));
    await within(upgrade.closed, "the end");
    expect(upgrade.received.slice(0, 12)).toBe(`HTTP/1.1 ${choosesUpgrades ? 431 : 501}`);
    expect(ends.has("/many")).toBe(false);
  });
});

describe.concurrent.each([
  ["HTTP", () => connect(port, "127.0.0.1")],
  ["HTTPS", overTls],
])("over %s, the server does not disconnect", (_, open) => {
  test("a client whose body makes progress, however long it takes", async () => {
    const client = new Raw(open());
    client.socket.write(head("POST /", "Content-Length: 10", "Connection: close"));
    await client.trickle("0123456789", LONGER_THAN_LIMITS / 10);
    await client.until(/got 10$/);
  });

  test("a client whose upstream answers late, or pauses between two events", async () => {
    const clients = ["/late", "/events"].map((path) => {
      const client = new Raw(open());
      client.socket.write(head(`GET ${path}`, "Connection: close"));
      return client;
    });
    await within(Promise.all(clients.map(({ closed }) => closed)), "the end");
    expect(clients[0]?.received).toMatch(/late/);
    expect(clients[1]?.received).toMatch(/data: 2/);
  });

  test("a client whose body the upstream does not read", async () => {
    const client = new Raw(open());
    const size = LARGE * CHUNK.length;
    client.socket.write(head("POST /unread", `Content-Length: ${size}`, "Connection: close"));
    for (let n = 0; n < LARGE; n++) client.socket.write(CHUNK);
    await client.until(new RegExp(`got ${size}$`));
  });

  test("a client that waits for the upstream's 100 (Continue)", async () => {
    const client = new Raw(open());
    const fields = ["Content-Length: 3", "Expect: 100-continue", "Connection: close"];
    client.socket.write(head("POST /expect", ...fields));
    await client.until(/^HTTP\/1\.1 100 /);
    client.socket.write("abc");
    await client.until(/got 3$/);
  });

  test("a client that pauses its body after the response has begun", async () => {
    const client = new Raw(open());
    client.socket.write(head("POST /early", "Content-Length: 4", "Connection: close"));
    client.socket.write("ab");
    await client.until(/begun/);
    await pause(LONGER_THAN_LIMITS);
    client.socket.write("cd");
    await client.until(/abcd/);
  });

  test("a client whose WebSocket is silent", async () => {
    const socket = new WebSocket("ws://a/", { createConnection: () => open() as never });
    await within(once(socket, "open"), "the opening");
    await pause(LONGER_THAN_LIMITS);
    socket.send("still here");
    const [data] = (await within(once(socket, "message"), "the answer")) as [Buffer];
    expect(data.toString()).toBe("still here");
    socket.terminate();
  });
});

test.concurrent("a client that begins no TLS handshake is disconnected", async () => {
  await within(new Raw(connect(securePort, "127.0.0.1")).closed, "the end");
});

describe.concurrent.each(["tls", "plain"])("over HTTP/2 (%s)", (kind) => {
  function open(): ClientHttp2Session {
    const origin = kind === "tls" ? `https://127.0.0.1:${securePort}` : `http://127.0.0.1:${port}`;
    const session = connectHttp2(origin, { ca: cert });
    session.on("error", () => {});
    return session;
  }

  test("a client loses only the stream whose body stops", async () => {
    const session = open();
    const slow = session.request({ ":method": "POST", ":path": `/h2-slow-${kind}` });
    const closed = closeOf(slow);
    slow.write("abc");
    const late = text(session.request({ ":path": `/late?h2-${kind}` }));
    await within(closed, "the stream's end");
    await until(() => ends.get(`/h2-slow-${kind}`) === "closed", "the end at the upstream");
    expect(await late).toBe("late");
    session.destroy();
  });

  test("a client loses only the stream that it does not read", async () => {
    const session = open();
    const stalled = session.request({ ":path": `/endless?h2-${kind}` });
    stalled.on("error", () => {});
    stalled.pause();
    await within(once(stalled, "response"), "the response");
    const late = text(session.request({ ":path": `/late?h2-2-${kind}` }));
    await until(() => ends.get(`/endless?h2-${kind}`) === "closed", "the end at the upstream");
    expect(await late).toBe("late");
    session.destroy();
  });

  test("a client that uploads in bursts, after each of which Node enlarges the window again, is served", async () => {
    const session = open();
    const stream = session.request({ ":method": "POST", ":path": `/h2-bursts-${kind}` });
    for (let n = 0; n < 8; n++) {
      stream.write(Buffer.alloc(40_000));
      await pause(LONGER_THAN_LIMITS / 8);
    }
    stream.end();
    expect(await text(stream)).toBe("got 320000");
    session.destroy();
  });

  test("a client that sends short requests, with pauses shorter than the limit, is served", async () => {
    const session = open();
    const closed = closeOf(session);
    for (let n = 0; n < 12; n++) {
      expect(await text(session.request({ ":path": "/" }))).toBe("got 0");
      await pause(LONGER_THAN_LIMITS / 12);
    }
    expect(session.closed).toBe(false);
    await within(closed, "the end");
  });

  test("a client that sends no further request is disconnected", async () => {
    const session = open();
    expect(await text(session.request({ ":path": "/" }))).toBe("got 0");
    await within(once(session, "close"), "the end");
  });

  test("a header section that is too large gets 431, and one with too many fields gets no answer", async () => {
    const session = open();
    // The client sends this first request before it knows the limits, so the server itself must refuse it.
    const large = session.request({ ":path": `/h2-large-${kind}`, x: "a".repeat(5000) });
    const [answered] = (await within(once(large, "response"), "the answer")) as [object];
    expect(answered).toMatchObject({ ":status": 431 });
    const many = Object.fromEntries(Array.from({ length: 30 }, (_, n) => [`x${n}`, "a"]));
    await within(
      closeOf(session.request({ ":path": `/h2-many-${kind}`, ...many })),
      "the stream's end",
    );
    expect([ends.has(`/h2-large-${kind}`), ends.has(`/h2-many-${kind}`)]).toEqual([false, false]);
    session.destroy();
  });
});

describe("at the limits for connections", () => {
  let proxy: Command;
  let capped = 0;
  const open = (localAddress: string, at = capped): Raw =>
    new Raw(connect({ port: at, host: "127.0.0.1", localAddress }));
  const ask = async (localAddress: string, at?: number): Promise<string> => {
    const client = open(localAddress, at);
    client.socket.write(head("GET /", "Connection: close"));
    await within(client.closed, "the end");
    return client.received.slice(0, 12);
  };

  const metrics = async (): Promise<string> => {
    const [, status = ""] = await proxy.says(/status page: (\S+)\//);
    return (await fetch(`${status}/metrics`)).text();
  };

  beforeAll(async () => {
    proxy = new Command(
      `${target} --port 0 --max-connections 8 --max-per-address 4 --trust-proxy 127.0.0.99 --admin 0`,
    );
    capped = Number(new URL(await proxy.origin()).port);
  });
  afterAll(() => proxy.kill());

  test("the connection that has been idle longest is closed to make room for a new one", async () => {
    const idle: Raw[] = [];
    for (const from of ["127.0.0.2", "127.0.0.3"]) {
      for (let n = 0; n < 4; n++) {
        // Wait for each response: several sockets listen, so Node may accept connections in another order than the clients open
        // them.
        const client = open(from);
        idle.push(client);
        client.socket.write(head("GET /"));
        await client.until(/^HTTP\/1\.1 200 /);
      }
    }
    expect(await ask("127.0.0.4")).toBe("HTTP/1.1 200");
    await until(() => idle.some(({ socket }) => socket.destroyed), "the end of one");
    expect(idle.map(({ socket }) => socket.destroyed)).toEqual(idle.map((_, n) => n === 0));
    for (const { socket } of idle) socket.destroy();
    const limit = { timeout: patience };
    await expect.poll(metrics, limit).toMatch(/^fetchway_client_connections 0$/m);
  });

  test("busy connections stay open at either limit, new ones are refused, and stderr says so", async () => {
    const busy: Raw[] = [];
    const begin = async (from: string): Promise<void> => {
      const client = open(from);
      busy.push(client);
      client.socket.write(head("GET /endless"));
      await client.until(/^HTTP\/1\.1 200 /);
      client.socket.pause();
    };
    for (let n = 0; n < 4; n++) await begin("127.0.0.5");
    expect(await ask("127.0.0.5")).toBe("");
    expect(await ask("127.0.0.6")).toBe("HTTP/1.1 200");
    // The limit for one address does not apply to a trusted proxy.
    for (let n = 0; n < 4; n++) await begin("127.0.0.99");
    expect(await ask("127.0.0.6")).toBe("HTTP/1.1 503");
    await until(() => /--max-per-address/.test(proxy.stderr), "the message");
    await expect
      .poll(() => proxy.stderr.replace(/^\S+ GET \/ → 503 .*\n/gm, ""))
      .toBe(
        "fetchway: connections are refused: 127.0.0.5 has 4 in use; raise --max-per-address, or name a proxy in --trust-proxy; or does a target lead back to this proxy? (--via detects it)\n",
      );
    const counted = await metrics();
    expect(counted).toMatch(/^fetchway_client_connections 8$/m);
    expect(counted).toMatch(/^fetchway_max_sockets \d+$/m);
    if (process.platform === "linux") expect(counted).toMatch(/^process_max_fds \d+$/m);
    expect(counted).toMatch(/^fetchway_client_connections_refused_total 2$/m);
    expect(counted).toMatch(/^fetchway_client_connections_evicted_total 1$/m);
    expect(counted).toMatch(/^fetchway_slow_clients_total\{reason="read"\} 0$/m);
    for (const { socket } of busy) socket.destroy();
  });

  test("a proxy that a changed config file trusts has no limit for its address from then on", async () => {
    const path = join(folder, "trusting.json");
    const write = (trustProxy: string[]): void =>
      writeFileSync(path, JSON.stringify({ target, trustProxy, server: { maxPerAddress: 1 } }));
    write([]);
    const trusting = new Command(`--config ${path} --port 0 --log off`);
    try {
      const at = Number(new URL(await trusting.origin()).port);
      const busy = open("127.0.0.9", at);
      busy.socket.write(head("GET /endless"));
      await busy.until(/^HTTP\/1\.1 200 /);
      busy.socket.pause();
      expect(await ask("127.0.0.9", at)).toBe("");
      write(["127.0.0.9"]);
      await trusting.says(/has been reloaded/);
      expect(await ask("127.0.0.9", at)).toBe("HTTP/1.1 200");
      write([]);
      await trusting.says(/has been reloaded[^]+has been reloaded/);
      expect(await ask("127.0.0.9", at)).toBe("");
      busy.socket.destroy();
    } finally {
      await trusting.kill();
    }
  });
});

test("a new connection that is closed for another one of its address gets 503, and stderr names `--max-per-address`", async () => {
  const proxy = new Command(`${target} --port 0 --max-per-address 2 --admin 0`);
  const where = Number(new URL(await proxy.origin()).port);
  const [, status = ""] = await proxy.says(/status page: (\S+)\//);
  const metrics = async (): Promise<string> => (await fetch(`${status}/metrics`)).text();
  const clients = Array.from({ length: 3 }, () => new Raw(connect(where, "127.0.0.1")));
  const limit = { timeout: patience };
  await expect.poll(metrics, limit).toMatch(/^fetchway_client_connections_evicted_total 1$/m);
  for (const { socket } of clients) socket.write(head("GET /", "Connection: close"));
  await within(Promise.all(clients.map(({ closed }) => closed)), "the end");
  const statuses = clients.map(({ received }) => received.slice(9, 12));
  expect(statuses.toSorted()).toEqual(["200", "200", "503"]);
  const fix = "raise --max-per-address, or name a proxy in --trust-proxy";
  const cause = `all connections of this address are in use (${fix})\n`;
  await until(() => proxy.stderr.includes(cause), "the line of the request");
  expect(proxy.stderr).toContain(`connections are refused: 127.0.0.1 has 2 in use; ${fix}; or`);
  await proxy.kill();
});

describe("beyond the limit for all connections", () => {
  /** Starts the command, and opens as many busy connections as it allows. */
  async function fill(line: string, program?: string[]): Promise<[Command, number]> {
    const proxy = new Command(`${target} --port 0 ${line}`, [], program);
    const origin = new URL(await proxy.origin());
    const where = Number(origin.port);
    for (let n = 0; n < 2; n++) {
      const options = { port: where, host: "127.0.0.1", ca: cert };
      const client = new Raw(origin.protocol === "https:" ? connectTls(options) : connect(options));
      client.socket.write(head("GET /endless"));
      await client.until(/^HTTP\/1\.1 200 /);
      client.socket.pause();
    }
    return [proxy, where];
  }

  const tls = `--max-connections 2 --cert ${join(folder, "cert.pem")} --key ${join(folder, "key.pem")}`;

  test.each([
    ["a GET", "GET /", ""],
    ["an upload", "POST /", "Content-Length: 1000000"],
    ...(choosesUpgrades
      ? [["a WebSocket", "GET /", "Connection: Upgrade\r\nUpgrade: websocket"] as const]
      : []),
  ] as const)(
    "%s gets 503 with Retry-After, and the connection is closed",
    async (_, line, field) => {
      const [proxy, where] = await fill("--max-connections 2");
      const client = new Raw(connect(where, "127.0.0.1"));
      client.socket.write(head(line, field));
      await within(client.closed, "the end");
      const [top = ""] = client.received.split("\r\n\r\n");
      expect(top).toMatch(/^HTTP\/1\.1 503 Service Unavailable\r\n/);
      expect(top).toMatch(/^retry-after: 1$/im);
      expect(top).toMatch(/^connection: close$/im);
      await expect
        .poll(() => proxy.stderr.replace(/^\S+ (?:GET|POST) \/ → 503 .*\n/gm, ""))
        .toBe(
          "fetchway: connections are refused: all 2 are in use; raise --max-connections, and ulimit -n to twice as many; or does a target lead back to this proxy? (--via detects it)\n",
        );
      await proxy.kill();
    },
  );

  test.each(["https", "http"])("an HTTP/2 client of %s gets 503 and GOAWAY", async (scheme) => {
    const [proxy, where] = await fill(scheme === "https" ? tls : "--max-connections 2");
    const session = connectHttp2(`${scheme}://127.0.0.1:${where}`, { ca: cert });
    session.on("error", () => {});
    const stream = session.request({ ":path": "/" });
    const [answered] = (await within(once(stream, "response"), "the answer")) as [object];
    expect(answered).toMatchObject({ ":status": 503, "retry-after": "1" });
    stream.resume();
    await within(once(session, "close"), "the end");
    await proxy.kill();
  });

  test("only a few connections may wait for their 503, and others are closed", async () => {
    const [proxy, where] = await fill("--max-connections 2");
    const silent = Array.from({ length: 40 }, () => new Raw(connect(where, "127.0.0.1")));
    await until(() => silent.some(({ socket }) => socket.destroyed), "the end of the first");
    await Promise.all(silent.map(async ({ closed }) => within(closed, "the end")));
    await proxy.kill();
  });

  test.runIf(process.platform === "linux")(
    "the line on stderr names the limit of open files if that limit is reached first",
    async () => {
      const few = ["sh", "-c", 'ulimit -n 114; exec "$@"', "sh", process.execPath];
      const [proxy, where] = await fill("", few);
      await proxy.says(/^ {2}at most 2 clients at the same time: ulimit -n is 114$/m);
      const client = new Raw(connect(where, "127.0.0.1"));
      client.socket.write(head("GET /"));
      await within(client.closed, "the end");
      expect(client.received).toMatch(/^HTTP\/1\.1 503 /);
      const own = "all connections are in use \\(raise --max-connections or ulimit -n\\)\n$";
      await until(() => new RegExp(own).test(proxy.stderr), "the line of the request");
      expect(proxy.stderr.split("\n")[0]).toBe(
        "fetchway: connections are refused: all 2 are in use, which 114 open files allow; raise ulimit -n; or does a target lead back to this proxy? (--via detects it)",
      );
      await proxy.kill();
    },
  );
});

// Memory and descriptors of a process are read from /proc. `npm run test:idle` sends the whole flood.
test.runIf(process.platform === "linux")(
  "other clients are served while 800 clients never complete their header section",
  async () => {
    const begun = "GET / HTTP/1.1\r\nHost: a\r\nX: a";
    const seen = await holdIdle(800, ["--max-connections", "300"], begun);
    expect(seen.opened).toBe(800);
    expect(seen.opened - seen.closed).toBeLessThanOrEqual(300 + maxTurnedAway(300));
    expect(seen.descriptors).toBeLessThan(500);
    expect(new Set(seen.statuses)).toEqual(new Set([200]));
  },
);
