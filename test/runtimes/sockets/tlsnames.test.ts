/** The names of TLS options: those of the runtime pass, and a misspelt one is refused wherever it can be written. */
import type { TcpNetConnectOpts } from "node:net";
import type { ConnectionOptions } from "node:tls";
import { describe, expect, test } from "vitest";
import { createProxy, createTransport, proxyFetch } from "../../../runtimes/node.ts";
import { checkTlsNames } from "../../../runtimes/sockets/tlsnames.ts";
import { mirrorTo } from "../../../src/exchange/mirror.ts";
import type { TargetAddress, TlsOptions } from "../../../src/target/target.ts";
import { balance } from "../../../src/upstreams/balance.ts";
import { startProgram } from "../../helpers/program.ts";

/** The compiler compares these names with the types of Node. */
const ofNode: Readonly<Record<keyof (ConnectionOptions & TcpNetConnectOpts), true>> = {
  allowHalfOpen: true,
  allowPartialTrustChain: true,
  ALPNCallback: true,
  ALPNProtocols: true,
  autoSelectFamily: true,
  autoSelectFamilyAttemptTimeout: true,
  blockList: true,
  ca: true,
  cert: true,
  certificateCompression: true,
  checkServerIdentity: true,
  ciphers: true,
  clientCertEngine: true,
  crl: true,
  dhparam: true,
  ecdhCurve: true,
  enableTrace: true,
  family: true,
  fd: true,
  handle: true,
  hints: true,
  honorCipherOrder: true,
  host: true,
  keepAlive: true,
  keepAliveInitialDelay: true,
  key: true,
  localAddress: true,
  localPort: true,
  lookup: true,
  maxVersion: true,
  minDHSize: true,
  minVersion: true,
  noDelay: true,
  onread: true,
  passphrase: true,
  path: true,
  pfx: true,
  port: true,
  privateKeyEngine: true,
  privateKeyIdentifier: true,
  pskCallback: true,
  readable: true,
  rejectUnauthorized: true,
  requestCert: true,
  requestOCSP: true,
  secureContext: true,
  secureOptions: true,
  secureProtocol: true,
  servername: true,
  session: true,
  sessionIdContext: true,
  sessionTimeout: true,
  sigalgs: true,
  signal: true,
  SNICallback: true,
  socket: true,
  ticketKeys: true,
  timeout: true,
  typeOfService: true,
  writable: true,
};

test.each(Object.keys(ofNode))("the TLS option %s of node:tls is accepted", (name) => {
  expect(() => checkTlsNames({ [name]: undefined }, [])).not.toThrow();
});

test.each([
  ["rejectUnauthorised", "did you mean `rejectUnauthorized`?"],
  ["serverName", "did you mean `servername`?"],
  ["minversion", "did you mean `minVersion`?"],
  ["certs", "did you mean `cert`?"],
  ["insecure", "`tls.connect` has none either"],
])("the unknown TLS option %s is refused with a hint: %s", (name, fix) => {
  const message = `fetchway: bad option \`tls\`: ${name}: there is no such option; ${fix}`;
  // A second check of the same object has the same result.
  const tls = { [name]: true } as TlsOptions;
  for (let i = 0; i < 2; i++) expect(() => checkTlsNames(tls, [])).toThrow(message);
});

describe("misspelt TLS options", () => {
  const tls = { rejectUnauthorised: false } as TlsOptions;
  const wrong: TargetAddress = { url: "https://a.test", tls };
  const fix = "rejectUnauthorised: there is no such option; did you mean `rejectUnauthorized`?";

  test.each<[string, () => unknown]>([
    ["in a target", () => createProxy({ target: wrong })],
    ["in a frozen target", () => createProxy({ target: Object.freeze({ ...wrong }) })],
    ["in a pool", () => createProxy({ target: "https://a.test", pool: { tls } })],
    ["in a transport", () => createTransport({ tls })],
    [
      "in a mirror",
      () => createProxy({ target: "https://a.test", mirror: mirrorTo({ target: wrong }) }),
    ],
    ["in one of several upstreams", () => createProxy({ target: balance([wrong]) })],
    [
      "in an upstream with a weight, and with an upstream for each address of its name",
      () => createProxy({ target: balance([{ target: wrong, weight: 2 }], { resolve: true }) }),
    ],
  ])("a misspelt TLS option is refused %s", (_, create) => {
    expect(create).toThrow(TypeError);
    expect(create).toThrow(fix);
  });

  test("a misspelt TLS option is refused in a target that a function returns, and in a call of `proxyFetch`", async () => {
    const request = new Request("http://proxy.test/");
    await expect(createProxy({ target: () => wrong }).fetch(request)).rejects.toThrow(fix);
    await expect(proxyFetch(request, wrong)).rejects.toThrow(fix);
  });
});

test.each(["node", "bun", "deno"] as const)(
  "%s accepts only its own TLS options",
  async (runtime) => {
    const entry = new URL(`../../../runtimes/${runtime}.ts`, import.meta.url).href;
    const code = `
    const { createTransport } = await import(${JSON.stringify(entry)});
    const named = [["ca"], ["checkServerIdentity"], ["caFile"], ["keyFile"], ["rejectUnauthorised"]];
    const passing = named.filter(([name]) => {
      try {
        return createTransport({ tls: { [name]: undefined } });
      } catch (error) {
        if (error instanceof TypeError) return false;
        throw error;
      }
    });
    console.log("passing=" + passing.join());
  `;
    const args = { node: ["--input-type=module", "-e"], bun: ["-e"], deno: ["eval"] }[runtime];
    await using program = startProgram(runtime, [...args, code]);
    const [, passing] = await program.printed(/passing=(.*)/);
    const files = runtime === "bun" ? ",caFile,keyFile" : "";
    expect(passing).toBe(`ca,checkServerIdentity${files}`);
  },
);
