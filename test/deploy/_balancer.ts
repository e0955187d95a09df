/**
 * A TCP load balancer like kube-proxy: an endpoint that is removed keeps its connections, but gets no further ones.
 */
import { once } from "node:events";
import { connect, createServer, type AddressInfo, type Socket } from "node:net";

export class Balancer implements Disposable {
  readonly endpoints: Set<string> = new Set();
  /** The number of connections that each endpoint has got so far, by address. */
  readonly connections: Map<string, number> = new Map();
  readonly #port: number;
  readonly #sockets: Set<Socket> = new Set();
  readonly #server = createServer({ allowHalfOpen: true, noDelay: true }, (client) =>
    this.#relay(client),
  );
  #turn = 0;

  /** @param port the port of the endpoints */
  constructor(port: number) {
    this.#port = port;
  }

  async listen(): Promise<number> {
    this.#server.listen(0, "127.0.0.1");
    await once(this.#server, "listening");
    return (this.#server.address() as AddressInfo).port;
  }

  #relay(client: Socket): void {
    const host = [...this.endpoints][this.#turn++ % this.endpoints.size];
    if (host === undefined) {
      client.resetAndDestroy();
      return;
    }
    this.connections.set(host, (this.connections.get(host) ?? 0) + 1);
    const server = connect({ host, port: this.#port, allowHalfOpen: true, noDelay: true });
    client.pipe(server);
    server.pipe(client);
    for (const [one, other] of [
      [client, server],
      [server, client],
    ] as const) {
      this.#sockets.add(one);
      one.on("error", () => other.resetAndDestroy());
      one.on("close", () => this.#sockets.delete(one));
    }
  }

  [Symbol.dispose](): void {
    this.#server.close();
    for (const socket of this.#sockets) socket.destroy();
  }
}
