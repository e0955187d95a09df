/** An address of a name. */
export interface Address {
  readonly address: string;
  readonly family: number;
}

/** The addresses of a name, in the order in which to try them. */
export interface Answer {
  /** Those to use, each time beginning with another. */
  readonly good: readonly Address[];
  /** Those that have failed lately: better than none. */
  readonly down: readonly Address[];
}

/**
 * Requests that an address may be ahead of another before a new connection
 * is worth its price: kept connections alone would stay with the address they have.
 */
const WORTH_A_CONNECTION = 8;
/** An address that comes late, or again, does not have to catch up with all that it missed. */
const MOST_BEHIND = 2 * WORTH_A_CONNECTION;

/** Spreads requests evenly over the addresses of a name. */
export class Spread {
  readonly #counts: Map<string, number> = new Map();
  #most = 0;

  /** How many addresses there are to choose from; 0 where nothing was looked up. */
  get size(): number {
    return this.#counts.size;
  }

  /** These are the addresses now. */
  update(addresses: readonly string[]): void {
    for (const address of this.#counts.keys()) {
      if (!addresses.includes(address)) this.#counts.delete(address);
    }
    for (const address of addresses) {
      if (!this.#counts.has(address)) this.#counts.set(address, this.#most);
    }
  }

  /** In which order to try the addresses for a new connection: those that have had the fewest requests first. */
  order({ good, down }: Answer): Address[] {
    this.update(good.map(({ address }) => address));
    const { least } = this;
    this.count(least);
    const first = good.filter(({ address }) => address === least);
    return [...first, ...good.filter(({ address }) => address !== least), ...down];
  }

  /** A request goes to this address. */
  count(address: string | undefined): void {
    const before = address === undefined ? undefined : this.#counts.get(address);
    if (before === undefined) return;
    const now = Math.max(before, this.#most - MOST_BEHIND) + 1;
    this.#counts.set(address as string, now);
    this.#most = Math.max(this.#most, now);
  }

  /** The address that has had the fewest. */
  get least(): string | undefined {
    let least: string | undefined;
    let fewest = Infinity;
    for (const [address, count] of this.#counts) {
      if (count >= fewest) continue;
      least = address;
      fewest = count;
    }
    return least;
  }

  /** Whether a connection to the address that has had the fewest is better than a free one to this address. */
  exceeds(address: string | undefined): boolean {
    if (address === undefined || this.least === undefined) return false;
    const count = this.#counts.get(address) ?? 0;
    return count - (this.#counts.get(this.least) ?? 0) >= WORTH_A_CONNECTION;
  }
}
