/** A scriptable upstream. It records the exact bytes of requests, and sends the exact bytes that a test sets. */
import { once } from "node:events";
import { createServer, type AddressInfo, type Server, type Socket } from "node:net";
import { Link, type Call } from "./link.ts";
import { pause, until } from "./wait.ts";

export type Script = (call: Call) => void | Promise<void>;

/** The default script: it responds with the request's body and its X-Id field. */
export const echo: Script = async (call) => {
  await call.done;
  if (call.state !== "complete") return;
  call.reply(200, [["X-Id", call.get("x-id") ?? ""]], call.body);
};

export class Upstream {
  /** The function that answers each request. The upstream calls it when the head of the request has arrived. */
  script: Script = echo;
  links: Link[] = [];

  /** The number of connections that are not closed. */
  get openLinks(): number {
    return this.links.filter((link) => !link.isClosed).length;
  }

  calls: Call[] = [];
  /** Descriptions of bytes from the proxy that are not valid HTTP, and of exceptions in scripts. */
  faults: string[] = [];
  readonly #server: Server;

  /** @param options whether HTTP/1.0 requests are accepted; by default, each is a fault */
  constructor({ acceptsHttp10 = false }: { acceptsHttp10?: boolean } = {}) {
    const version = acceptsHttp10 ? /^1\.[01]$/ : /^1\.1$/;
    this.#server = createServer({ allowHalfOpen: true, noDelay: true }, (socket) =>
      this.#accept(socket, version),
    );
  }

  #accept(socket: Socket, version: RegExp): void {
    const { links, calls, faults } = this;
    const onCall = (call: Call): void => {
      calls.push(call);
      Promise.resolve(call)
        .then((value) => this.script(value))
        .catch((error: unknown) => faults.push(`script: ${String(error)}`));
    };
    links.push(new Link(links.length, socket, version, onCall, (fault) => faults.push(fault)));
  }

  /** @throws if the given port is in use */
  async listen(port = 0): Promise<void> {
    this.#server.listen(port, "127.0.0.1");
    await once(this.#server, "listening");
  }

  get port(): number {
    return (this.#server.address() as AddressInfo).port;
  }

  get url(): string {
    return `http://127.0.0.1:${this.port}`;
  }

  get authority(): string {
    return `127.0.0.1:${this.port}`;
  }

  /** Waits until the head of the request with this index has arrived. */
  async call(index = 0): Promise<Call> {
    await until(() => this.calls.length > index, `request ${index} at the upstream`);
    return this.calls[index] as Call;
  }

  /**
   * Restores the default script, forgets all requests and faults, and closes all connections. Resolves when the connections
   * are closed, so that no pool can reuse one.
   */
  async reset(): Promise<void> {
    const { links } = this;
    [this.script, this.links, this.calls, this.faults] = [echo, [], [], []];
    await Promise.all(
      links.map(async (link) => {
        if (link.idle) link.socket.end();
        else link.socket.destroy();
        // Count turns of the event loop, not time: after a stall of this process, the peer's FIN is still unread.
        for (let turn = 0; turn < 25 && !link.isClosed; turn++) {
          await Promise.race([link.closed, pause(20)]);
        }
        link.socket.destroy();
      }),
    );
  }

  async stop(): Promise<void> {
    await this.reset();
    this.#server.close();
  }
}
