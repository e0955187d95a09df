/** An upstream whose DNS record changes under steady load, on Node, Bun and Deno, over each protocol. */
import { createServer, type RequestListener, type Server } from "node:http";
import { createServer as createHttp2 } from "node:http2";
import { createServer as createHttps } from "node:https";
import { describe, expect, test } from "vitest";
import { makeCertificate } from "../../helpers/certificate.ts";
import { NameServer } from "../../helpers/dns.ts";
import { askFor, runtimes, startFront } from "./http2/_front.ts";
import { listen } from "../../helpers/serve.ts";
import { within } from "../../helpers/wait.ts";

const OLD = "127.0.0.1";
const NEW = "127.0.0.2";
const CLIENTS = 3;

const certificate = await makeCertificate();

type Create = (listener: RequestListener) => Server;

/** For each protocol: how to create the upstream, the scheme of its URL, and the pool option `http2`. */
const protocols = {
  "HTTP/1.1": { create: createServer as Create, scheme: "http", http2: false },
  "HTTP/2": { create: createHttp2 as unknown as Create, scheme: "http", http2: true },
  // The upstream chooses HTTP/1.1 in the TLS handshake, and the pool for HTTP/1.1 takes the connection over.
  "HTTP/1.1 that TLS has chosen": {
    create: ((listener) => createHttps(certificate, listener)) as Create,
    scheme: "https",
    http2: true,
  },
} as const;

describe.concurrent.each(runtimes)("on %s", (runtime) => {
  test.each(Object.entries(protocols))(
    "%s: when the record of a name changes, requests move to the new address, and none fails",
    async (_, { create, scheme, http2 }) => {
      await using opened = new AsyncDisposableStack();
      const open = async (address: string, on: number): Promise<number> => {
        const listener: RequestListener = (req, res) => void res.end(address);
        const server = create(listener);
        opened.defer(() => void server.close());
        return listen(server, on, address);
      };
      const port = await open(OLD, 0);
      await open(NEW, port);
      await using names = await new NameServer().listen();
      const setAddress = (address: string): void => {
        names.zones["app.test"] = { addresses: [address], ttl: 1 };
      };
      setAddress(OLD);
      const tls = { ca: certificate.cert, servername: "localhost" };
      const pool = { http2, tls, dns: { servers: [names.address] } };
      const front = await startFront(runtime, pool, { retry: false });
      opened.defer(() => front.close());
      const url = `${scheme}://app.test:${port}`;

      const ask = async (): Promise<string> => {
        const client = await front.connect();
        client.send(askFor(url));
        const { status, text } = await client.read();
        client.leave("FIN");
        return `${status} ${text}`;
      };
      expect(await ask()).toBe(`200 ${OLD}`);
      setAddress(NEW);
      const failed: string[] = [];
      const followed = new Set<number>();
      let isOver = false;
      const follow = async (name: number): Promise<void> => {
        // All clients send until the new address has answered each of them, so that no connection is idle for long.
        while (!isOver && followed.size < CLIENTS) {
          const answer = await ask();
          if (answer === `200 ${NEW}`) followed.add(name);
          else if (answer !== `200 ${OLD}`) failed.push(answer);
        }
      };
      const clients = Array.from({ length: CLIENTS }, (_each, name) => follow(name));
      await within(Promise.all(clients), "the new address").finally(() => (isOver = true));
      expect(failed).toEqual([]);
      // A connection to the old address that was established late is used until three lookups have not found that address.
      const stay = async (): Promise<void> => {
        for (let count = 0; count < 10;) count = (await ask()) === `200 ${NEW}` ? count + 1 : 0;
      };
      await within(stay(), "ten responses of the new address in a row");
    },
  );
});
