/** A scriptable upstream: records exact bytes, and answers exactly what the test says. */
import { once } from "node:events";
import { createServer, type AddressInfo, type Server, type Socket } from "node:net";
import { Link, type Call } from "./_link.ts";
import { until, within } from "./_wait.ts";

export type Script = (call: Call) => void | Promise<void>;

/** The default script: the request's body comes back whole, and its x-id. */
export const echo: Script = async (call) => {
  await call.done;
  if (call.state !== "complete") return;
  call.reply(200, [["X-Id", call.get("x-id") ?? ""]], call.body);
};

export class Upstream {
  /** Decides how each request is answered; called when its head has arrived. */
  script: Script = echo;
  links: Link[] = [];

  /** The number of connections that are not closed. */
  get openLinks(): number {
    return this.links.filter((link) => !link.isClosed).length;
  }

  calls: Call[] = [];
  /** What the proxy sent that is not HTTP, and what a script threw. */
  faults: string[] = [];
  readonly #server: Server;

  constructor() {
    this.#server = createServer({ allowHalfOpen: true, noDelay: true }, (socket) =>
      this.#accept(socket),
    );
  }

  #accept(socket: Socket): void {
    const { links, calls, faults } = this;
    const onCall = (call: Call): void => {
      calls.push(call);
      Promise.resolve(call)
        .then((value) => this.script(value))
        .catch((error: unknown) => faults.push(`script: ${String(error)}`));
    };
    links.push(new Link(links.length, socket, onCall, (fault) => faults.push(fault)));
  }

  /** @throws where a given port is taken */
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

  /** The request of that index, once its head has arrived. */
  async call(index = 0): Promise<Call> {
    await until(() => this.calls.length > index, `request ${index} at the upstream`);
    return this.calls[index] as Call;
  }

  /** Forgets everything; an idle connection is closed and seen closed, so that no pool holds it. */
  async reset(): Promise<void> {
    const { links } = this;
    [this.script, this.links, this.calls, this.faults] = [echo, [], [], []];
    await Promise.all(
      links.map(async (link) => {
        if (link.idle) link.socket.end();
        else link.socket.destroy();
        await within(link.closed, "an idle connection's close", 500).catch(() =>
          link.socket.destroy(),
        );
      }),
    );
  }

  async stop(): Promise<void> {
    await this.reset();
    this.#server.close();
  }
}
