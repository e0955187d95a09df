import type { ResolvedAddress, FoundAddresses } from "./connector.ts";

/**
 * Once an address has had this many requests more than the least used address, a new connection to the least used one is
 * opened. If idle connections were always reused, requests would go only to addresses that already have connections.
 */
const WORTH_A_CONNECTION = 8;
/**
 * An address counts as at most this many requests behind the most used one. Otherwise, an address that was unused for a
 * long time would get all requests until it has caught up.
 */
const MAX_BEHIND = 2 * WORTH_A_CONNECTION;

/** Balances requests over the IP addresses of one host name. */
export class AddressBalancer {
  /**
   * The number of addresses over which requests are balanced; 0 if no name was resolved, or if `isOrder` is true. A field
   * instead of a getter, because each request reads it.
   */
  size = 0;
  /**
   * Whether the addresses are tried in a fixed order, as in `FoundAddresses`. Requests are then not balanced over them.
   */
  isOrder = false;
  /** The number of requests by address. A new address begins with the highest number. */
  readonly #counts: Map<string, number> = new Map();
  /** The highest number in `#counts`. */
  #most = 0;

  /**
   * Returns the working addresses in the order in which a new connection tries them. Unless `isOrder` is true, the least used
   * address comes first, and a request to it is counted.
   */
  orderAddresses(found: FoundAddresses): readonly ResolvedAddress[] {
    this.update(found);
    const { good } = found;
    const { leastUsed } = this;
    this.countRequest(leastUsed);
    const first = good.filter(({ address }) => address === leastUsed);
    return [...first, ...good.filter(({ address }) => address !== leastUsed)];
  }

  /** Replaces the addresses by those that a lookup has found. */
  update({ good, isOrder }: FoundAddresses): void {
    this.isOrder = isOrder;
    if (isOrder) return;
    const addresses = good.map(({ address }) => address);
    for (const address of this.#counts.keys()) {
      if (!addresses.includes(address)) this.#counts.delete(address);
    }
    for (const address of addresses) {
      if (!this.#counts.has(address)) this.#counts.set(address, this.#most);
    }
    this.size = this.#counts.size;
  }

  countRequest(address: string | undefined): void {
    const before = address === undefined ? undefined : this.#counts.get(address);
    if (before === undefined) return;
    const now = Math.max(before, this.#most - MAX_BEHIND) + 1;
    this.#counts.set(address as string, now);
    this.#most = Math.max(this.#most, now);
  }

  /** The address that has had the fewest requests. */
  get leastUsed(): string | undefined {
    let least: string | undefined;
    let fewest = Infinity;
    for (const [address, count] of this.#counts) {
      if (count >= fewest) continue;
      least = address;
      fewest = count;
    }
    return least;
  }

  /** Returns whether a new connection to the least used address is better than an idle connection to this address. */
  isOverused(address: string | undefined): boolean {
    const { leastUsed } = this;
    if (address === undefined || leastUsed === undefined) return false;
    const count = this.#counts.get(address) ?? 0;
    return count - (this.#counts.get(leastUsed) ?? 0) >= WORTH_A_CONNECTION;
  }
}
