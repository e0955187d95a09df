/** TLS of the command: its own certificate on each runtime, and the certificates of upstreams. */
import { once } from "node:events";
import { mkdirSync, mkdtempSync, renameSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { connect as connectHttp2 } from "node:http2";
import { createServer, request } from "node:https";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { text } from "node:stream/consumers";
import { connect } from "node:tls";
import type { IncomingMessage } from "node:http";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { WebSocketServer } from "ws";
import { readCertificate, readTrust } from "../../command/serve/certificate.ts";
import { makeCertificate } from "../helpers/certificate.ts";
import { nameAsWritten } from "../../command/config/settings.ts";
import { Command, command, listening, programs, upstream } from "./_command.ts";
import { sayHello } from "../helpers/handshake.ts";
import { listen } from "../helpers/serve.ts";
import { until, within } from "../helpers/wait.ts";

/** Names options as a command line without a config file does. */
const byFlag = nameAsWritten({}, {});

const folder = mkdtempSync(join(tmpdir(), "fetchway-"));
const own = await makeCertificate();
const other = await makeCertificate();

function save(name: string, content: string): string {
  const path = join(folder, name);
  writeFileSync(path, content);
  return path;
}

/** The origin of a web page. */
const app = "https://app.example";
// Begin the files with byte order marks, as some editors on Windows do.
const [cert, key] = [save("cert.pem", `\uFEFF${own.cert}`), save("key.pem", `\uFEFF${own.key}`)];
const echo = new WebSocketServer({ port: 0, host: "127.0.0.1" });
echo.on("connection", (socket) =>
  socket.on("message", (data) => socket.send(data, { binary: false })),
);

/** An upstream with a self-signed certificate. */
const secure = createServer(own, (_, res) => res.end("from the upstream"));
let secureTarget = "";

beforeAll(async () => {
  secureTarget = `https://localhost:${await listen(secure)}`;
  upstream.handler = async (req, res) => {
    res.setHeader("x-proto", String(req.headers["x-forwarded-proto"]));
    res.end(`${req.method} ${req.url} ${await text(req)}`);
  };
});
afterAll(() => {
  echo.close();
  secure.close().closeAllConnections();
  rmSync(folder, { recursive: true });
});

async function post(origin: string, ca: string): Promise<[IncomingMessage, string]> {
  const sent = request(`${origin}/a?b`, { method: "POST", ca, agent: false });
  sent.end("hello");
  const [response] = (await once(sent, "response")) as [IncomingMessage];
  return [response, await text(response)];
}

/** Opens a TLS connection, and returns the fingerprint of the server's certificate. */
async function fingerprintOf(origin: string, ca: string): Promise<string> {
  const { port } = new URL(origin);
  const socket = connect({ port: Number(port), host: "127.0.0.1", ca });
  await once(socket, "secureConnect");
  const { fingerprint256 } = socket.getPeerCertificate();
  socket.destroy();
  return fingerprint256;
}

describe.each(["node", "bun", "deno"] as const)("the command on %s serves HTTPS", (runtime) => {
  let proxy: Command;
  let origin = "";
  let webSocketOrigin = "";
  beforeAll(async () => {
    const { port } = echo.address() as { port: number };
    const routes = `--route /ws=http://127.0.0.1:${port} --route /secure=${secureTarget} ${upstream.url}`;
    const line = `${routes} --ca ${cert} --cors-origin ${app} --port 0 --cert ${cert} --key ${key}`;
    proxy = new Command(line, [], programs[runtime]);
    origin = await proxy.origin();
    webSocketOrigin = origin.replace("https:", "wss:");
  });
  afterAll(() => proxy.kill());

  test("to HTTP/1.1 clients that trust its certificate", async () => {
    expect(origin).toMatch(/^https:/);
    const [{ statusCode, headers }, body] = await post(origin, own.cert);
    expect([statusCode, headers["x-proto"], body]).toEqual([200, "https", "POST /a?b hello"]);
    await expect(post(origin, other.cert)).rejects.toThrow(/self-signed certificate/);
  });

  // Bun's server supports only HTTP/1.1.
  test.skipIf(runtime === "bun")("to HTTP/2 clients", async () => {
    const session = connectHttp2(origin, { ca: own.cert });
    const stream = session.request({ ":method": "POST", ":path": "/a?b" });
    stream.end("hello");
    const [head] = (await once(stream, "response")) as [Record<string, unknown>];
    expect([head[":status"], head["x-proto"], await text(stream)]).toEqual([
      200,
      "https",
      "POST /a?b hello",
    ]);
    session.destroy();
  });

  test("and answers CORS requests of web pages", async () => {
    const asked = { origin: app, "access-control-request-method": "PUT" };
    const options = { ca: own.cert, agent: false } as const;
    const sent = [
      request(origin, { ...options, method: "OPTIONS", headers: asked }).end(),
      request(origin, { ...options, headers: { origin: app } }).end(),
    ];
    const answers = sent.map(async (each) => {
      const [response] = (await once(each, "response")) as [IncomingMessage];
      await text(response);
      const { headers, statusCode } = response;
      return [
        statusCode,
        headers["access-control-allow-origin"],
        headers["access-control-allow-methods"],
      ];
    });
    expect(await Promise.all(answers)).toEqual([
      [204, app, "PUT"],
      [200, app, undefined],
    ]);
  });

  test("and trusts an upstream whose certificate is in --ca", async () => {
    const sent = request(`${origin}/secure`, { ca: own.cert, agent: false }).end();
    const [response] = (await once(sent, "response")) as [IncomingMessage];
    expect(await text(response)).toBe("from the upstream");
  });

  test("to WebSocket clients", async () => {
    expect(await sayHello(`${webSocketOrigin}/ws`, { ca: own.cert })).toBe("hello");
  });

  test("and reads the certificate again on SIGHUP, where the runtime can", async () => {
    if (runtime !== "node") {
      proxy.child.kill("SIGHUP");
      const message = /the certificate is not reloaded: only Node's server/;
      await until(() => message.test(proxy.stderr), "the message");
      return;
    }
    const before = await fingerprintOf(origin, own.cert);
    const session = connectHttp2(origin, { ca: own.cert });
    await once(session, "connect");
    save("cert.pem", other.cert);
    proxy.child.kill("SIGHUP");
    await until(() => proxy.stderr !== "", "the message");
    expect(proxy.stderr).toMatch(/^fetchway: the certificate stays as it is: --key .+ not the key/);
    expect(await fingerprintOf(origin, own.cert)).toBe(before);
    save("key.pem", other.key);
    proxy.child.kill("SIGHUP");
    await proxy.says(/the certificate has been reloaded/);
    expect(await fingerprintOf(origin, other.cert)).not.toBe(before);
    // A connection from before is still served.
    const stream = session.request({ ":path": "/" });
    expect(await text(stream)).toBe("GET / ");
    session.destroy();
    save("cert.pem", own.cert);
    save("key.pem", own.key);
  });
});

describe("a certificate whose files change", () => {
  let count = 0;
  /** Writes a certificate and key into a new folder, and lets a link point to it, as Kubernetes does with a Secret. */
  function mount(pair: { cert: string; key: string }): void {
    const name = `secret${++count}`;
    mkdirSync(join(folder, name));
    save(`${name}/tls.crt`, pair.cert);
    save(`${name}/tls.key`, pair.key);
    symlinkSync(name, join(folder, "..data.new"));
    renameSync(join(folder, "..data.new"), join(folder, "..data"));
  }
  const paths = `--cert ${folder}/..data/tls.crt --key ${folder}/..data/tls.key`;
  const countReads = ({ stdout }: Command): number =>
    stdout.match(/the certificate has been reloaded\n/g)?.length ?? 0;

  test("the certificate is read again without a signal, and an invalid pair does not replace the valid one", async () => {
    mount(own);
    const { proxy, origin } = await listening(`${upstream.url} ${paths} --admin 0`);
    const before = await fingerprintOf(origin, own.cert);
    mount({ cert: other.cert, key: own.key });
    await until(() => proxy.stderr !== "", "the message");
    expect(proxy.stderr).toMatch(
      /^fetchway: the certificate stays as it is: --key .+ not the key of .+\n$/,
    );
    expect(await fingerprintOf(origin, own.cert)).toBe(before);
    mount(other);
    await until(() => countReads(proxy) === 1, "the second certificate");
    expect(await fingerprintOf(origin, other.cert)).not.toBe(before);
    proxy.child.kill("SIGTERM");
    expect(await within(proxy.exit, "the exit")).toBe(0);
    expect(proxy.stderr.split("\n")).toHaveLength(2);
  });

  test("the certificate is read again when both files have changed, and no error is printed after the change of the first file", async () => {
    const [crt, pem] = [save("renewed.crt", own.cert), save("renewed.key", own.key)];
    const config = save(
      "config.json",
      JSON.stringify({ target: upstream.url, server: { cert: crt, key: pem } }),
    );
    const { proxy, origin } = await listening(`--config ${config}`);
    save("renewed.crt", other.cert);
    // Change the config file while only one of the two files of the certificate has changed.
    save(
      "config.json",
      `${JSON.stringify({ target: upstream.url, server: { cert: crt, key: pem } })}\n`,
    );
    await proxy.says(/config\.json has been reloaded: 1 route, unchanged/);
    expect(countReads(proxy)).toBe(0);
    save("renewed.key", other.key);
    await until(() => countReads(proxy) === 1, "the certificate");
    expect(await fingerprintOf(origin, other.cert)).toBeDefined();
    expect(proxy.stderr).toBe("");
  });

  test.each(["bun", "deno"] as const)(
    "on %s, the certificate is not read again, and a message says so",
    async (runtime) => {
      mount(own);
      const proxy = new Command(`${upstream.url} --port 0 ${paths}`, [], programs[runtime]);
      await proxy.origin();
      mount(other);
      const message = /the certificate is not reloaded: only Node's server/;
      await until(() => message.test(proxy.stderr), "the message");
      await proxy.kill();
    },
  );
});

describe("an upstream with a self-signed certificate", () => {
  async function ask(flags: string): Promise<{ answer: string; stderr: string }> {
    const proxy = new Command(`${secureTarget} --port 0 ${flags}`);
    const response = await fetch(await proxy.origin());
    const answer = `${response.status} ${await response.text()}`;
    await proxy.kill();
    return { answer, stderr: proxy.stderr };
  }

  test("its certificate is refused, unless --insecure accepts any certificate", async () => {
    const [refused, accepted] = await Promise.all([ask(""), ask("--insecure")]);
    expect(refused.answer).toMatch(/^502 /);
    expect(accepted.answer).toBe("200 from the upstream");
    expect(accepted.stderr).toMatch(/^fetchway: --insecure accepts any certificate .+\n$/);
  });
});

describe("a wrong certificate file is refused with a message that names it and the fix", () => {
  const broken = save(
    "broken.pem",
    "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n",
  );
  const locked = save("locked.pem", "-----BEGIN ENCRYPTED PRIVATE KEY-----\nAAAA\n");
  test.each([
    [{ cert }, "--cert needs --key: the file of its private key"],
    [{ key }, "--key needs --cert: the file of its certificate"],
    [{ cert: "/no/such", key }, '--cert "/no/such" cannot be read: there is no such file'],
    [{ cert: folder, key }, `--cert "${folder}" cannot be read: it is a folder`],
    [
      { cert: key, key },
      `--cert "${key}": there is no certificate in PEM (-----BEGIN CERTIFICATE-----) in it`,
    ],
    [
      { cert, key: cert },
      `--key "${cert}": there is no private key in PEM (-----BEGIN PRIVATE KEY-----) in it`,
    ],
    [
      { cert, key: locked },
      `--key "${locked}": the key is encrypted; write it decrypted with openssl pkey -in … -out …`,
    ],
    [
      { cert, key: save("other.pem", other.key) },
      `it is not the key of the first certificate in ${cert}`,
    ],
    [{ cert: broken, key }, `--cert "${broken}" cannot be used: `],
  ])("the flags %j", (paths, message) => {
    expect(() => readCertificate(paths, byFlag)).toThrow(message);
  });

  test("the flag --ca", () => {
    expect(() => readTrust({ ca: key }, byFlag)).toThrow(
      `--ca "${key}": there is no certificate in PEM`,
    );
    expect(() => readTrust({ ca: broken }, byFlag)).toThrow(`--ca "${broken}" cannot be used: `);
    const both = save("both.pem", `of one:\n${own.cert}of another:\n${other.cert}`);
    expect(readTrust({ ca: both }, byFlag)).toEqual({ ca: [own.cert.trim(), other.cert.trim()] });
    expect(readTrust({}, byFlag)).toBeUndefined();
  });
});

describe("a config file with TLS options", () => {
  const secret = save("config.key", own.key);
  const config = (server: object): string => {
    const path = save("paths.json", JSON.stringify({ target: upstream.url, server }));
    return `--config ${path} --port 0`;
  };

  test("the paths in the file are relative to its own folder", async () => {
    save("relative.crt", own.cert);
    save("relative.key", own.key);
    const server = { cert: "relative.crt", key: "./relative.key" };
    const { origin } = await listening(config(server));
    expect(origin).toMatch(/^https:/);
  });

  test.each([
    [
      { cert: "none.pem", key: secret },
      `server.cert "${folder}/none.pem" cannot be read: there is no such file`,
    ],
    [{ key: secret }, "server.key needs server.cert: the file of its certificate"],
    [{ ca: "none.pem" }, `server.ca "${folder}/none.pem" cannot be read: there is no such file`],
  ])(
    "with a mistake causes a message with the name of the option, not of a flag: %j",
    async (server, message) => {
      expect(await command(config(server)).refusal()).toBe(`fetchway: ${message}\n`);
    },
  );

  test("if a flag replaces a wrong option of the file, the message names the flag", async () => {
    const line = `${config({ cert: "none.pem", key: secret })} --cert none.pem`;
    expect(await command(line).refusal()).toBe(
      'fetchway: --cert "none.pem" cannot be read: there is no such file\n',
    );
  });

  test("a file that accepts any certificate causes a warning with the name of the option", async () => {
    const proxy = command(config({ insecure: true }));
    await proxy.warns(/^fetchway: server\.insecure accepts any certificate/);
  });

  test("with workers, the parent alone warns, and warns as well if a changed file accepts any certificate", async () => {
    const warning = /insecure accepts any certificate/g;
    const flag = command(`${config({})} --port 0 --workers 2 --insecure`);
    const file = command(`${config({ insecure: false })} --port 0 --workers 2`);
    await Promise.all([flag.origin(), file.origin()]);
    await flag.warns(/insecure accepts any certificate/);
    expect(flag.stderr.match(warning)).toHaveLength(1);
    expect(file.stderr).not.toMatch(warning);
    config({ insecure: true });
    await file.warns(/server\.insecure accepts any certificate/);
    expect(file.stderr.match(warning)).toHaveLength(1);
  });
});

test("a certificate file that begins with other text is accepted", () => {
  const annotated = save("annotated.pem", `Bag Attributes\n${own.cert}`);
  expect(readCertificate({ cert: annotated, key }, byFlag)?.cert).toContain("Bag Attributes");
});
