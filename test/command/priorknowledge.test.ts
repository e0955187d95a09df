/** HTTP/2 with prior knowledge on the command's port without TLS. */
import { once } from "node:events";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import {
  type ClientHttp2Session,
  connect as connectHttp2,
  type SecureClientSessionOptions,
} from "node:http2";
import { connect } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { text } from "node:stream/consumers";
import { afterAll, beforeEach, expect, test } from "vitest";
import { makeCertificate } from "../helpers/certificate.ts";
import { PREFACE } from "../helpers/frames.ts";
import { until, within } from "../helpers/wait.ts";
import { Command, command, listening, programs, upstream } from "./_command.ts";

const folder = mkdtempSync(join(tmpdir(), "fetchway-"));
afterAll(() => rmSync(folder, { recursive: true }));

beforeEach(() => {
  upstream.handler = async (req, res) => {
    const { "x-forwarded-proto": proto, "x-forwarded-for": client } = req.headers;
    res.end([req.method, req.url, proto, client, await text(req)].join(" "));
  };
});

function open(origin: string, options: SecureClientSessionOptions = {}): ClientHttp2Session {
  return connectHttp2(origin, options).on("error", () => {});
}

async function post(session: ClientHttp2Session, path: string, scheme = "http"): Promise<string> {
  const stream = session.request({ ":method": "POST", ":path": path, ":scheme": scheme });
  stream.end("hello");
  return within(text(stream), "the answer");
}

// Bun's server supports only HTTP/1.1.
test.each(["node", "deno"] as const)(
  "on %s, one port serves both versions of HTTP",
  async (runtime) => {
    const line = `${upstream.url} --port 0 --log common`;
    const proxy = new Command(line, [], programs[runtime]);
    const origin = await proxy.origin();
    const session = open(origin);
    const [first, second, other] = await Promise.all([
      post(session, "/one"),
      // On Node, the client's `:scheme` is ignored: the connection decides.
      post(session, "/two", runtime === "node" ? "https" : "http"),
      fetch(`${origin}/three`, { method: "POST", body: "hello" }).then((each) => each.text()),
    ]);
    expect([first, second, other]).toEqual([
      "POST /one http 127.0.0.1 hello",
      "POST /two http 127.0.0.1 hello",
      "POST /three http 127.0.0.1 hello",
    ]);
    session.destroy();
    if (runtime === "node") {
      await proxy.says(/"POST \/one HTTP\/2\.0" 200 /);
      await proxy.says(/"POST \/three HTTP\/1\.1" 200 /);
    }
    await proxy.kill();
  },
);

test("a Unix domain socket and workers serve HTTP/2 with prior knowledge", async () => {
  const path = join(folder, "socket");
  const socket = command(`${upstream.url} --host unix:${path} --log off`);
  await socket.says(/listens on/);
  const sessions = [0, 1].map(() => open("http://a", { createConnection: () => connect(path) }));
  const answers = sessions.map((session, n) => post(session, `/${n}`));
  expect(await Promise.all(answers)).toEqual([0, 1].map((n) => `POST /${n} http 127.0.0.1 hello`));
  // The clients of a Unix domain socket have no distinct addresses, so the end of one session must not affect the other.
  sessions[0]?.destroy();
  expect(await post(sessions[1] as ClientHttp2Session, "/2")).toContain("POST /2 ");
  sessions[1]?.destroy();

  const { origin } = await listening(`${upstream.url} --workers 2`);
  for (let n = 0; n < 4; n++) {
    const session = open(origin);
    expect(await post(session, `/${n}`)).toContain(`POST /${n} `);
    session.destroy();
  }
});

test("the listener that redirects to HTTPS refuses the preface", async () => {
  const { cert, key } = await makeCertificate();
  const [certPath, keyPath] = [join(folder, "cert.pem"), join(folder, "key.pem")];
  writeFileSync(certPath, cert);
  writeFileSync(keyPath, key);
  const tls = `--cert ${certPath} --key ${keyPath} --redirect-http 0`;
  const { proxy } = await listening(`${upstream.url} ${tls}`);
  const [, port] = await proxy.says(/^ {2}http:\/\/127\.0\.0\.1:(\d+) redirects to https:$/m);
  const client = connect(Number(port), "127.0.0.1");
  client.write(PREFACE);
  expect(await within(text(client), "the answer")).toMatch(/^HTTP\/1\.1 400 /);
});

test("connections with prior knowledge count towards --max-per-address, and idle ones are closed for new ones", async () => {
  const { origin } = await listening(`${upstream.url} --max-per-address 2`);
  const first = open(origin);
  // Wait until this connection is accepted, because the server listens on several sockets, each with its own queue.
  await post(first, "/first");
  const second = open(origin);
  await post(second, "/second");
  const third = open(origin);
  expect(await post(third, "/third")).toContain("POST /third ");
  await until(() => first.destroyed, "the end of the first");

  // While both are busy, a further connection is refused.
  const held: unknown[] = [];
  upstream.handler = (req, res) => void (req.url === "/held" ? held.push(res) : res.end());
  for (const session of [second, third]) {
    session.request({ ":path": "/held" }).on("error", () => {});
  }
  await until(() => held.length === 2, "the requests");
  const client = connect(Number(new URL(origin).port), "127.0.0.1");
  client.write(PREFACE);
  const [{ code }] = (await within(once(client, "error"), "the refusal")) as [{ code: string }];
  expect(code).toMatch(/^(?:ECONNRESET|EPIPE)$/);
  second.destroy();
  third.destroy();
});
