import type { Sink } from "../body/source.ts";
import { ProxyError } from "../error.ts";
import type { Account, Claim, Holder } from "./claim.ts";

/** The lowest rate at which a client may take a response, or send a body, while others wait. */
export interface MinimumRate {
  /** Bytes a second; 0 for no limit. */
  readonly minRate: number;
  /** Milliseconds for which a client may be slower. */
  readonly minRateGrace: number;
}

/** What was seen of a request at the last look. */
interface Meter {
  /** The bytes that the client had taken or sent. */
  readonly bytes: number;
  /** The bytes that are missing to the minimum rate. */
  readonly missing: number;
}

/** The status of a request whose client is too slow (RFC 9110 §15.5.9). */
const CLIENT_TOO_SLOW = 408;

/**
 * Ends requests whose clients are so slow that others wait for them without need. It looks at all of them from time to time:
 * a timer for each would cost every request.
 *
 * A client has to be slower than the minimum rate for the whole of the grace period; what it moves above the rate shortens
 * that time, and is not kept for later. Only looks count: a client can do nothing while the event loop is blocked.
 */
export class SlowClients {
  readonly #rate: MinimumRate;
  readonly #interval: number;
  /** The requests that waited for their clients at the last look. */
  #meters: Map<Claim, Meter> = new Map();

  /** @param interval milliseconds between two looks */
  constructor(rate: MinimumRate, interval: number) {
    this.#rate = rate;
    this.#interval = interval;
  }

  /** Forgets what was seen, because nothing waits. */
  forget(): void {
    this.#meters = new Map();
  }

  /**
   * Looks at all requests, and ends those that are too slow: no more of an address than its surplus over its share, and no
   * more in all than other addresses have waiting requests.
   * @param countOthers returns the number of requests that wait and are not those of this account
   */
  look(holders: Iterable<Holder>, share: number, countOthers: (account: Account) => number): void {
    const { minRate, minRateGrace } = this.#rate;
    const due = (minRate * this.#interval) / 1000;
    const most = (minRate * minRateGrace) / 1000;
    const meters = new Map<Claim, Meter>();
    /** The surplus of each address whose clients are too slow. */
    const surplus = new Map<Account, number>();
    let ended = 0;
    for (const { account, claim } of holders) {
      if (account === undefined || claim === undefined) continue;
      const others = countOthers(account);
      if (account.running <= share || others === 0) continue;
      const bytes = claim.clientBytes;
      if (bytes === undefined) continue;
      const last = this.#meters.get(claim);
      // The first look begins the time: what the client has done before is not known.
      const moved = last === undefined ? due : Math.max(0, bytes - last.bytes);
      const missing = Math.max(0, (last?.missing ?? 0) + due - moved);
      meters.set(claim, { bytes, missing });
      const left = surplus.get(account) ?? account.running - share;
      if (missing < most || left <= 0 || ended >= others) continue;
      surplus.set(account, left - 1);
      ended++;
      claim.endSlow?.(tooSlow(minRate));
    }
    this.#meters = meters;
  }
}

/**
 * Returns the number of bytes of a response that the client has taken, if the response waits for it.
 * @param reader the sink that has no room; undefined if it has
 * @param received the number of bytes that have arrived
 */
export function countTaken(reader: object | undefined, received: number): number | undefined {
  if (reader === undefined) return undefined;
  let sink: Partial<Sink> & { readonly sink?: Sink } = reader;
  while (sink.sink !== undefined) ({ sink } = sink);
  // Nothing tells that an app has dropped a response that it has not begun to read.
  return sink.isUnread === true ? undefined : received - (sink.unsent ?? 0);
}

/** Returns the error of a request whose client is too slow. No other error of the library has the status 408. */
function tooSlow(minRate: number): ProxyError {
  return new ProxyError("http_request_error", {
    status: CLIENT_TOO_SLOW,
    message: `the client moved fewer than ${minRate} bytes a second (minRate) while others waited`,
  });
}
