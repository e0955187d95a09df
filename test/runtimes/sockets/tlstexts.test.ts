/** Certificates and keys in TLS options that begin with a byte order mark, as editors on Windows write them. */
import { createServer } from "node:https";
import type { TLSSocket } from "node:tls";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { removeMarks } from "../../../runtimes/sockets/tlstexts.ts";
import { makeCertificate } from "../../helpers/certificate.ts";
import { EVALUATE, startProgram } from "../../helpers/program.ts";
import { listen } from "../../helpers/serve.ts";

const MARK = "\uFEFF";
const own = await makeCertificate();
const server = createServer(
  { ...own, ca: own.cert, requestCert: true, rejectUnauthorized: false },
  ({ socket }, res) => {
    const { subject } = (socket as TLSSocket).getPeerCertificate();
    res.end(subject === undefined ? "no client certificate" : `of ${String(subject.CN)}`);
  },
);
let url = "";

beforeAll(async () => {
  url = `https://localhost:${await listen(server)}`;
});
afterAll(() => server.close().closeAllConnections());

/** Sends a request with texts that begin with a mark, and one with the same texts as bytes. */
const PROGRAM = `
  import process from "node:process";
  import { Buffer } from "node:buffer";
  import { createProxy } from "#fetchway";
  const { url, cert, key } = JSON.parse(process.env.SETUP);
  const of = (mark) => ({ ca: [mark(cert)], cert: mark(cert), key: mark(key) });
  for (const tls of [of((text) => text), of((text) => Buffer.from(text))]) {
    const proxy = createProxy({ target: { url, tls } });
    console.log(await (await proxy.fetch(new Request("http://x/"))).text());
    await proxy.close();
  }
`;

describe.each(["node", "bun", "deno"] as const)("on %s", (runtime) => {
  test("certificates and keys that begin with a byte order mark work", async () => {
    const setup = { url, cert: MARK + own.cert, key: MARK + own.key };
    const args = [...EVALUATE[runtime], PROGRAM];
    await using program = startProgram(runtime, args, { SETUP: JSON.stringify(setup) });
    await program.ended();
    expect(program.output()).toBe("of localhost\nof localhost\n");
  });
});

test("`removeMarks` changes neither other TLS options nor texts without a byte order mark", () => {
  const tls = { ca: ["a", "b"], key: "c", servername: "d" };
  expect(removeMarks(tls)).toEqual(tls);
});
