import type { Agent, ClientRequest, IncomingMessage } from "node:http";
import type { Socket } from "node:net";
import { getHeader } from "../../src/headers.ts";
import type { HeaderList } from "../../src/transport.ts";
import type { Job } from "./pool.ts";

type Http = typeof import("node:http");

/** The runtime's own `node:http`, taken at run time: a bundle for another runtime has nothing of Node's in it. */
const { process } = globalThis as unknown as {
  process: { getBuiltinModule(name: "node:http"): Http };
};
let http: Http | undefined;

/** Who is told what becomes of a connection. */
export interface Owner {
  /** Its request is over, and it can take another. */
  onFree(connection: Connection): void;
  /** It has been silent for as long as it may. */
  onSilence(connection: Connection): void;
  /** It is gone. */
  onClose(connection: Connection): void;
}

/**
 * One connection, and all that `node:http`'s client asks of an agent: one that has this socket alone.
 *
 * The client marks a request as sent on a used socket only for agents of its own, and Deno sends
 * those again when the connection breaks, a POST too: on ours it never does.
 */
export class Connection {
  readonly protocol = "http:";
  readonly defaultPort = 80;
  /** Together with no limit of sockets, `false` makes the client say `Connection: close`. */
  readonly keepAlive: boolean;
  readonly maxSockets: number = Infinity;
  readonly openedAt: number = performance.now();
  /** Until when it may be idle, as `performance.now()` has it. */
  expiry = 0;
  /** Whether it has been made, */
  isOpen = false;
  /** and the address that it leads to. */
  address: string | undefined;
  /** What uses it for now. */
  job: Job | undefined;
  readonly #socket: Socket;
  #response: IncomingMessage | undefined;
  #requests = 0;
  #heard = false;

  /** @param silence ms that it may be silent while it is used; 0 for no limit */
  constructor(socket: Socket, keepAlive: boolean, silence: number, owner: Owner) {
    this.#socket = socket;
    this.keepAlive = keepAlive;
    // Who uses it has a listener of its own; nobody else is to crash over it.
    socket.on("error", () => {});
    socket.on("data", () => this.#onData());
    socket.on("free", () => {
      this.job = undefined;
      if (this.usable) owner.onFree(this);
      else socket.destroy();
    });
    socket.once("close", () => owner.onClose(this));
    if (silence === 0) return;
    socket.setTimeout(silence);
    socket.on("timeout", () => {
      socket.setTimeout(silence);
      owner.onSilence(this);
    });
  }

  opened(address: string | undefined): void {
    this.isOpen = true;
    this.address = address;
  }

  /** Sends a request's head. The rest goes to what this returns. */
  request(method: string, path: string, headers: HeaderList, job: Job): ClientRequest {
    http ??= process.getBuiltinModule("node:http");
    const agent = this as unknown as Agent;
    const request = http.request({ method, path, headers, agent });
    this.job = job;
    this.#response = undefined;
    this.#requests++;
    this.#heard = false;
    return request;
  }

  /** @internal The client's question to its agent. */
  addRequest(request: ClientRequest): void {
    this.#socket.ref();
    request.onSocket(this.#socket);
  }

  /** The response headers of the present request are here. */
  answered(response: IncomingMessage): void {
    this.#response = response;
  }

  /** Whether a request can be sent on it. */
  get usable(): boolean {
    const { destroyed, writable, readableEnded } = this.#socket;
    return !destroyed && writable && !readableEnded;
  }

  /** Whether it has carried a request before the present one, of which no byte has come back. */
  get stale(): boolean {
    return this.#requests > 1 && !this.#heard;
  }

  /** Milliseconds that the upstream said it keeps the connection. */
  get hint(): number {
    const hint = getHeader(this.#response?.rawHeaders ?? [], "keep-alive");
    const seconds = hint === undefined ? undefined : /timeout=(\d+)/i.exec(hint)?.[1];
    return seconds === undefined ? Infinity : Number(seconds) * 1000;
  }

  /** Nobody uses it until then at most: it does not hold the process. */
  rest(expiry: number): void {
    this.expiry = expiry;
    this.#response = undefined;
    this.#socket.unref();
  }

  destroy(): void {
    this.#socket.destroy();
  }

  #onData(): void {
    this.#heard = true;
    // Bytes that nobody asked for: the next request would take them for its answer.
    if (this.job === undefined || this.#response?.complete) this.#socket.destroy();
  }
}
