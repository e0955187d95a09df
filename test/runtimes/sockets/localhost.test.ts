/** Names with several addresses, of which some fail or belong to other programs, on Node, Bun and Deno. */
import dns from "node:dns";
import { createServer, type RequestListener, type Server } from "node:http";
import { createServer as createHttps } from "node:https";
import type { TLSSocket } from "node:tls";
import { afterEach, describe, expect, test, vi } from "vitest";
import type { PoolOptions } from "../../../src/options/pooloptions.ts";
import { makeCertificate } from "../../helpers/certificate.ts";
import { NameServer } from "../../helpers/dns.ts";
import { startFull } from "./_full.ts";
import { askFor, type Front, type Http2Runtime, runtimes, startFront } from "./http2/_front.ts";
import { listen } from "../../helpers/serve.ts";
import { Served } from "./_served.ts";

/**
 * The addresses that the system has for `localhost` in these tests. They are IPv4 addresses, so that the tests also run without
 * IPv6.
 */
const FIRST = "127.0.0.2";
const SECOND = "127.0.0.3";

/** Makes the system find these addresses for `localhost`, in the process of a proxy. */
const PRELUDE = `
  const dns = process.getBuiltinModule("node:dns");
  const { lookup } = dns;
  dns.lookup = (name, options, found) =>
    name === "localhost"
      ? found(null, [{ address: "${FIRST}", family: 4 }, { address: "${SECOND}", family: 4 }])
      : lookup(name, options, found);
`;

const certificate = await makeCertificate();
const answerAddress: RequestListener = (req, res) => {
  const { servername } = req.socket as Partial<TLSSocket>;
  res.end(`${req.socket.localAddress}${servername === undefined ? "" : ` ${servername}`}`);
};
const protocols = {
  http: (): Server => createServer(answerAddress),
  https: (): Server => createHttps(certificate, answerAddress),
};

afterEach(() => void vi.restoreAllMocks());

async function startLocal(runtime: Http2Runtime, pool: PoolOptions): Promise<Front> {
  const withTls = { ...pool, tls: { ca: certificate.cert } };
  if (runtime !== "node") {
    const served = new Served(runtime, "?to", withTls, { retry: false }, {}, PRELUDE);
    return { connect: () => served.connect(), close: () => served[Symbol.asyncDispose]() };
  }
  const { lookup } = dns;
  const addresses = [FIRST, SECOND].map((address) => ({ address, family: 4 }));
  vi.spyOn(dns, "lookup").mockImplementation(((
    name: string,
    options: object,
    found: (error: null, addresses: object[]) => void,
  ) => {
    if (name === "localhost") found(null, addresses);
    else lookup(name, options, found as never);
  }) as never);
  return startFront(runtime, withTls, { retry: false });
}

async function ask(front: Front, url: string): Promise<string> {
  const client = await front.connect();
  client.send(askFor(url));
  const { status, text } = await client.read();
  client.leave("FIN");
  return `${status} ${text}`;
}

async function stop(server: Server): Promise<void> {
  server.closeAllConnections();
  await new Promise((resolve) => server.close(resolve));
}

describe.each(runtimes)("on %s", (runtime) => {
  test.each(Object.entries(protocols))(
    "%s: requests to localhost use its first address, and its second address only while the first refuses connections",
    async (scheme, create) => {
      await using opened = new AsyncDisposableStack();
      const open = async (address: string, on: number): Promise<[Server, number]> => {
        const server = create();
        const port = await listen(server, on, address);
        opened.defer(() => void server.close());
        return [server, port];
      };
      const [first, port] = await open(FIRST, 0);
      await open(SECOND, port);
      const front = await startLocal(runtime, { keepAlive: false });
      opened.defer(() => front.close());
      const url = `${scheme}://localhost:${port}`;
      const tail = scheme === "https" ? " localhost" : "";
      const askTimes = async (count: number): Promise<Set<string>> => {
        const answers = new Set<string>();
        for (let i = 0; i < count; i++) answers.add(await ask(front, url));
        return answers;
      };
      expect(await askTimes(20)).toEqual(new Set([`200 ${FIRST}${tail}`]));
      await stop(first);
      expect(await askTimes(5)).toEqual(new Set([`200 ${SECOND}${tail}`]));
      await open(FIRST, port);
      expect(await askTimes(5)).toEqual(new Set([`200 ${FIRST}${tail}`]));
    },
  );

  test("an address that drops packets delays a connection by less than a second", async () => {
    await using opened = new AsyncDisposableStack();
    const server = createServer(answerAddress);
    const port = await listen(server, 0, SECOND);
    opened.defer(() => void server.close());
    await using full = await startFull(FIRST, port);
    expect(full.sockets.length).toBeGreaterThan(0);
    await using names = await new NameServer().listen();
    const hosts = ["a.test", "b.test", "c.test", "d.test"];
    for (const host of hosts) names.zones[host] = { addresses: [FIRST, SECOND], ttl: 60 };
    const pool = { keepAlive: false, dns: { servers: [names.address] } };
    const front = await startFront(runtime, pool, { retry: false });
    opened.defer(() => front.close());
    const times: number[] = [];
    for (const host of hosts) {
      const url = `http://${host}:${port}`;
      // The first two requests may try either address first.
      const since = performance.now();
      expect(await ask(front, url)).toBe(`200 ${SECOND}`);
      expect(await ask(front, url)).toBe(`200 ${SECOND}`);
      times.push(performance.now() - since);
    }
    // On a busy machine, some of these times may be longer, so only the shortest must be below the limit.
    expect(Math.min(...times)).toBeLessThan(900);
    expect(Math.max(...times)).toBeGreaterThan(200);
  });

  test("connectTimeout limits the total time of the attempts at all addresses", async () => {
    await using opened = new AsyncDisposableStack();
    await using names = await new NameServer().listen();
    const server = createServer(answerAddress);
    const port = await listen(server, 0, "127.0.0.4");
    opened.defer(() => void server.close());
    await using first = await startFull(FIRST, port);
    await using second = await startFull(SECOND, port);
    expect(first.sockets.length + second.sockets.length).toBeGreaterThan(1);
    names.zones["full.test"] = { addresses: [FIRST, SECOND], ttl: 60 };
    names.zones["slow.test"] = { addresses: [FIRST, SECOND, "127.0.0.4"], ttl: 60 };
    const dnsOptions = { servers: [names.address] };
    const front = await startFront(runtime, { connectTimeout: 2500, dns: dnsOptions });
    opened.defer(() => front.close());
    expect(await ask(front, `http://full.test:${port}`)).toBe(
      "504 Gateway Timeout: connection_timeout\n",
    );
    // The third address is tried after two delays, within the limit.
    expect(await ask(front, `http://slow.test:${port}`)).toBe("200 127.0.0.4");
  });
});
