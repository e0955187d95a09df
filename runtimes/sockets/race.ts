import type { ResolvedAddress } from "../../src/http1/connector.ts";
import { ProxyError } from "../../src/error.ts";
import { codeOf, socketErrorType } from "../../src/transport/socketerror.ts";
import type { NetSocket } from "./netsocket.ts";

/** Milliseconds after which the next address is tried while an earlier attempt continues (RFC 8305 §5). */
const ATTEMPT_DELAY = 250;

/** The functions that a race calls. */
interface RaceParts {
  /**
   * Starts to connect to an address.
   * @throws the error of an option with which every connection would fail, such as an invalid certificate
   */
  readonly open: (address: string) => NetSocket;
  /** Takes the first socket that is connected. The TLS handshake has not begun. */
  readonly onWon: (socket: NetSocket) => void;
  /** Called if no address could be connected to, or if `open` has thrown. */
  readonly onLost: (error: unknown) => void;
  /**
   * Called for an address whose attempt has failed. With `isSlow`, the attempt has not failed by itself: it was slower than the
   * attempt at a later address, or than the time limit.
   */
  readonly onFailed: (address: string, isSlow: boolean) => void;
}

/**
 * Tries several addresses, and keeps the first connection. If an address does not answer soon, the next one is tried as well,
 * and the earlier attempt continues: on a slow path it may be the only one that succeeds (RFC 8305 §5).
 *
 * Node's own `autoSelectFamily` gives an attempt up when it begins the next one.
 */
export class Race {
  readonly #parts: RaceParts;
  readonly #delay: number;
  #addresses: readonly string[] = [];
  /** The number of addresses that were tried. */
  #tried = 0;
  /** The sockets that are not connected yet, in the order in which they were opened. */
  readonly #pending: Map<NetSocket, string> = new Map();
  readonly #errors: Error[] = [];
  #timer: ReturnType<typeof setTimeout> | undefined;
  #winner: NetSocket | undefined;
  #isStopped = false;

  /** @param limit milliseconds for all attempts; 0 for no limit */
  constructor(limit: number, parts: RaceParts) {
    this.#parts = parts;
    // With a limit below 500 ms, try the next address after half of the limit.
    this.#delay = limit === 0 ? ATTEMPT_DELAY : Math.min(ATTEMPT_DELAY, Math.ceil(limit / 2));
  }

  /** Begins with the first address, unless the race was stopped before. */
  start(addresses: readonly string[]): void {
    if (this.#isStopped) return;
    this.#addresses = addresses;
    this.#tryNext();
  }

  /**
   * Closes all sockets.
   * @param isLate whether the attempts have exceeded the time limit, so that their addresses have failed
   */
  stop(isLate: boolean = false): void {
    if (isLate) for (const address of this.#pending.values()) this.#parts.onFailed(address, true);
    this.#isStopped = true;
    this.#closePending();
    this.#winner?.destroy();
  }

  #tryNext(): void {
    clearTimeout(this.#timer);
    const address = this.#addresses[this.#tried];
    if (address === undefined) {
      if (this.#pending.size === 0) this.#parts.onLost(combineErrors(this.#errors));
      return;
    }
    this.#tried++;
    let socket: NetSocket;
    try {
      socket = this.#parts.open(address);
    } catch (error) {
      this.#closePending();
      return this.#parts.onLost(error);
    }
    this.#pending.set(socket, address);
    let error: Error | undefined;
    socket.raw
      .on("connect", () => this.#win(socket))
      .on("error", (thrown) => (error = thrown))
      .on("close", () => this.#fail(socket, error));
    if (this.#tried < this.#addresses.length) {
      this.#timer = setTimeout(() => this.#tryNext(), this.#delay);
    }
  }

  #win(socket: NetSocket): void {
    // A socket that has lost the race may still connect before it is closed.
    if (!this.#pending.has(socket)) return;
    for (const [other, address] of this.#pending) {
      if (other === socket) break;
      this.#parts.onFailed(address, true);
    }
    this.#pending.delete(socket);
    this.#closePending();
    this.#winner = socket;
    this.#parts.onWon(socket);
  }

  #fail(socket: NetSocket, error: Error | undefined): void {
    const address = this.#pending.get(socket);
    if (address === undefined) return;
    this.#pending.delete(socket);
    const thrown = error ?? new ProxyError("connection_terminated");
    this.#errors.push(thrown);
    // If this process has no descriptor left, the address is not to blame.
    if (socketErrorType(thrown) !== "connection_limit_reached") {
      this.#parts.onFailed(address, false);
    }
    this.#tryNext();
  }

  #closePending(): void {
    clearTimeout(this.#timer);
    const sockets = [...this.#pending.keys()];
    this.#pending.clear();
    for (const socket of sockets) socket.destroy();
  }
}

/** Orders addresses so that IPv4 and IPv6 alternate while there are addresses of both (RFC 8305 §4). */
export function alternateFamilies(addresses: readonly ResolvedAddress[]): ResolvedAddress[] {
  const first = addresses.filter(({ family }) => family === addresses[0]?.family);
  const other = addresses.filter(({ family }) => family !== addresses[0]?.family);
  const longest = Math.max(first.length, other.length);
  return Array.from({ length: longest }, (_, i) => [first[i], other[i]])
    .flat()
    .filter((address) => address !== undefined);
}

/** Returns the error of the only address, or one error that contains the errors of all addresses. */
function combineErrors(errors: readonly Error[]): Error {
  if (errors.length === 1) return errors[0] as Error;
  const all = new AggregateError(errors);
  return Object.assign(all, { code: codeOf(all) });
}
