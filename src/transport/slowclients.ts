import type { Sink } from "../body/source.ts";
import { ProxyError } from "../error.ts";
import type { Account, Claim, Holder } from "./claim.ts";

/** The lowest rate at which a client may take a response, or send a body, while others wait. */
export interface MinimumRate {
  /** Bytes a second; 0 for no limit. */
  readonly minRate: number;
  /** Milliseconds for which a client may be slower than `minRate`. */
  readonly minRateGrace: number;
  /**
   * The name of `minRate` in errors.
   * @default "minRate"
   */
  readonly rateName?: string;
}

/** The progress of a request at the last check. */
interface Meter {
  /** The number of bytes that the client had taken or sent. */
  readonly bytes: number;
  /** The number of bytes by which the client was behind the minimum rate. */
  readonly behind: number;
}

/** The status of a request whose client is too slow (RFC 9110 §15.5.9). */
const CLIENT_TOO_SLOW = 408;

/**
 * Ends requests whose clients are too slow while others wait. It checks all requests at intervals, because a timer for each
 * would cost every request.
 *
 * A request ends when its client is behind the minimum rate by as many bytes as the rate allows in the grace period.
 * Bytes above the rate let a client catch up, but give no credit for later. Each check counts as one interval, even if it
 * is late, because a client can do nothing while the event loop is blocked.
 */
export class SlowClients {
  readonly #rate: MinimumRate;
  readonly #interval: number;
  /** The requests whose progress the last check has measured. */
  #meters: Map<Claim, Meter> = new Map();

  /** @param interval milliseconds between two checks */
  constructor(rate: MinimumRate, interval: number) {
    this.#rate = rate;
    this.#interval = interval;
  }

  /** Forgets the progress of all requests, because no request waits any more. */
  forget(): void {
    this.#meters = new Map();
  }

  /**
   * Checks all requests, and ends those whose clients are too slow. Of each address, it ends at most the number of requests by
   * which the address exceeds its share; in total, at most as many as requests of other addresses wait. The excess is rounded
   * up: otherwise, slow clients of two addresses with two places each would keep all requests of a third address waiting.
   * @param countOthers returns the number of waiting requests of all other accounts
   */
  check(holders: Iterable<Holder>, share: number, countOthers: (account: Account) => number): void {
    const { minRate, minRateGrace } = this.#rate;
    const due = (minRate * this.#interval) / 1000;
    const maxBehind = (minRate * minRateGrace) / 1000;
    const meters = new Map<Claim, Meter>();
    /** For each address with slow clients, the number of requests above its share. */
    const surplus = new Map<Account, number>();
    let ended = 0;
    for (const { account, claim } of holders) {
      if (account === undefined || claim === undefined) continue;
      const others = countOthers(account);
      if (account.running <= share || others === 0) continue;
      const bytes = claim.clientBytes;
      if (bytes === undefined) continue;
      const last = this.#meters.get(claim);
      // The first check only starts the measurement, because the earlier progress of the client is not known.
      const moved = last === undefined ? due : Math.max(0, bytes - last.bytes);
      const behind = Math.max(0, (last?.behind ?? 0) + due - moved);
      meters.set(claim, { bytes, behind });
      const left = surplus.get(account) ?? account.running - share;
      if (behind < maxBehind || left <= 0 || ended >= others) continue;
      surplus.set(account, left - 1);
      ended++;
      claim.endSlow?.(tooSlow(this.#rate));
    }
    this.#meters = meters;
  }
}

/**
 * Returns the number of bytes of a response that the client has taken, if the response waits for the client.
 * @param reader the sink of the response, if it has no room; undefined if it has room
 * @param received the number of bytes that have arrived from the upstream; on HTTP/1.1, since the connection was opened
 */
export function countTaken(reader: object | undefined, received: number): number | undefined {
  if (reader === undefined) return undefined;
  let sink: Partial<Sink> & { readonly sink?: Sink } = reader;
  while (sink.sink !== undefined) ({ sink } = sink);
  // An app that has not begun to read the response may have dropped it, so its client does not count as slow.
  return sink.isUnread === true ? undefined : received - (sink.unsent ?? 0);
}

/** Returns the error of a request whose client is too slow. No other error of `src/` has the status 408. */
function tooSlow({ minRate, rateName = "minRate" }: MinimumRate): ProxyError {
  return new ProxyError("http_request_error", {
    status: CLIENT_TOO_SLOW,
    message: `the client moved fewer than ${minRate} bytes a second (${rateName}) while others waited`,
  });
}
