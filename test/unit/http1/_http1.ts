/** Creates connections and transports of the HTTP/1.1 client over fake sockets. */
import type { ProxyError } from "../../../src/error.ts";
import { HttpTransport } from "../../../src/http1/client.ts";
import { portableCodec } from "./_codec.ts";
import { Connection, type Job } from "../../../src/http1/connection.ts";
import type { PoolOptions } from "../../../src/options/pooloptions.ts";
import type { UpstreamRequest, UpstreamResponse } from "../../../src/transport/message.ts";
import { bytes, type Given, fakeRequest, startScope, TARGET } from "../../helpers/fakes.ts";
import { FakeConnector, type FakeOwner, FakeSocket, fakeOwner, settled } from "./_sockets.ts";

/** The bytes of a response without content. */
export const EMPTY = "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n";

/** A request that was sent, its outcome, and a function that disconnects its client. */
export interface Sent {
  /** The status or the error code; undefined while the request is pending. */
  outcome: string | undefined;
  reply: UpstreamResponse | undefined;
  error?: ProxyError;
  leave(): void;
}

export class PoolBench {
  readonly connector: FakeConnector = new FakeConnector();
  readonly transport: HttpTransport;

  constructor(options: PoolOptions = {}) {
    this.transport = new HttpTransport("fake", options, {
      createConnector: () => this.connector,
      codec: portableCodec,
    });
  }

  /** @param clientAddress the address of the client, for connections that name their client */
  send(hop: Given<UpstreamRequest> = {}, clientAddress?: string): Sent {
    const { scope, client } = startScope(0, 0);
    client.clientAddress = clientAddress;
    const sent: Sent = { outcome: undefined, reply: undefined, leave: () => client.leave() };
    this.transport.send(fakeRequest(hop), scope).then(
      (reply) => Object.assign(sent, { outcome: `${reply.status}`, reply }),
      (error: unknown) => Object.assign(sent, { outcome: (error as ProxyError).code, error }),
    );
    return sent;
  }

  /** Sends a request and answers it, on a new connection. */
  async exchange(hop?: Partial<UpstreamRequest>): Promise<FakeSocket> {
    this.send(hop);
    const socket = await this.connector.attempts.at(-1)?.succeed();
    if (socket === undefined) throw new Error("no connection was asked for");
    socket.receive(EMPTY);
    await settled();
    return socket;
  }

  get stats(): object {
    const { created, closed, failed, timedOut, requests, origins } = this.transport.stats();
    return { created, closed, failed, timedOut, requests, ...origins[TARGET] };
  }
}

/** A job that records the calls of its connection. */
export class FakeJob implements Job {
  readonly newConnection = false;
  readonly connectTimeout = undefined;
  readonly clientAddress = undefined;
  readonly upgrade = undefined;
  readonly isPaused = false;
  place = undefined;
  readonly chunks: Uint8Array[] = [];
  readonly errors: unknown[] = [];
  ended = 0;

  sent = 0;

  join(): void {}

  send(): void {
    this.sent++;
  }

  fail(thrown: unknown): void {
    this.errors.push(thrown);
  }

  onHead(): void {}

  onChunk(chunk: Uint8Array): void {
    this.chunks.push(chunk);
  }

  onEnd(): void {
    this.ended++;
  }

  get text(): string {
    return Buffer.concat(this.chunks).toString("latin1");
  }
}

interface ConnectionSetup {
  keepAlive?: boolean;
  timeout?: number;
  /** Whether the connection is established from the start. */
  isOpen?: boolean;
}

export class ConnectionBench {
  readonly socket: FakeSocket = new FakeSocket();
  readonly owner: FakeOwner = fakeOwner();
  readonly job: FakeJob = new FakeJob();
  readonly connection: Connection;

  constructor({ keepAlive = true, timeout = 0, isOpen = true }: ConnectionSetup = {}) {
    this.connection = new Connection({ keepAlive, timeout }, portableCodec, this.owner);
    if (isOpen) this.connection.open(this.socket);
    this.connection.take(this.job);
    this.connection.beginRequest("GET");
  }

  write(text: string, done?: () => void): boolean {
    return this.connection.write(bytes(text), done);
  }

  /** Returns a function that returns whether `onceDrained` has called back. */
  async isDrained(): Promise<() => boolean> {
    let isOver = false;
    this.connection.onceDrained(() => (isOver = true));
    await settled();
    return () => isOver;
  }
}
