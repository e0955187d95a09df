/** Real upstreams on loopback addresses, for tests of several upstreams. */
import { once } from "node:events";
import { createServer, type IncomingMessage, type Server, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";

/** HTTP servers that respond with 200 and their index. They hold back the response to `/hold` until `release` is called. */
export class TestUpstreams implements AsyncDisposable {
  readonly urls: string[] = [];
  /** The paths of all requests. */
  readonly paths: string[] = [];
  /** All requests, with their header fields. */
  readonly requests: IncomingMessage[] = [];
  #held: ServerResponse[] = [];
  readonly #servers: Server[] = [];

  /**
   * @param addresses the address of each server. Servers on different addresses use the same port; a repeated address gets a
   * free port.
   */
  async start(addresses: readonly string[]): Promise<void> {
    for (const [index, address] of addresses.entries()) {
      const server = createServer((req, res) => {
        this.paths.push(req.url ?? "");
        this.requests.push(req);
        if (req.url === "/hold") this.#held.push(res);
        else res.end(String(index));
      });
      const isSame = addresses.indexOf(address) < index;
      const [first] = this.#servers;
      const port = isSame || first === undefined ? 0 : (first.address() as AddressInfo).port;
      server.listen(port, address);
      await once(server, "listening");
      this.#servers.push(server);
      const { port: own } = server.address() as AddressInfo;
      this.urls.push(`http://${address}:${own}`);
    }
  }

  /** The number of responses that are held back. */
  get held(): number {
    return this.#held.length;
  }

  /** Sends the responses that are held back. */
  release(): void {
    for (const res of this.#held.splice(0)) res.end("held");
  }

  async [Symbol.asyncDispose](): Promise<void> {
    for (const server of this.#servers) {
      server.close();
      server.closeAllConnections();
      await once(server, "close");
    }
  }
}

/** Starts the given number of upstreams on one address, or one upstream on each of the given addresses. */
export async function startUpstreams(where: number | readonly string[]): Promise<TestUpstreams> {
  const upstreams = new TestUpstreams();
  await upstreams.start(
    typeof where === "number" ? Array.from({ length: where }, () => "127.0.0.1") : where,
  );
  return upstreams;
}
