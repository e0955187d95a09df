import {
  Account,
  type Claim,
  type Holder,
  type Place,
  type Places,
  type Waiting,
} from "./claim.ts";
import { type MinimumRate, SlowClients } from "./slowclients.ts";
import { startBackgroundTimer } from "./timers.ts";

/** The key of all clients whose address is not known. */
const UNKNOWN = "";

/**
 * The maximum time in milliseconds between two checks. A check looks for slow clients, calls `onCheck`, and ends the
 * counting if no request waits.
 */
const MAX_CHECK_INTERVAL = 500;

/**
 * The requests that wait for a limited number of places. The addresses of clients take turns, and the requests of one address
 * are served in the order of their arrival. An address that has more than its share of the places comes after the others, so
 * that its many requests cannot keep the others waiting; while no other address waits, it gets all places.
 *
 * The queue begins to count the places of each address when requests of several addresses wait, or (unless `minRate` is 0) when
 * requests of one address still wait at a check. It stops when a check finds no waiting request. So a request that finds a free
 * place costs nothing here. The queue counts requests instead of connections, so that a client gains nothing by HTTP/2.
 */
export class AddressQueue<T extends Waiting> {
  /** The number of waiting requests; read only. A field instead of a getter, because each response reads it. */
  length = 0;
  /** Whether the places of each address are counted; read only. While they are, the owner calls `start` and `end`. */
  isCounting = false;
  readonly #places: Places;
  readonly #slowClients: SlowClients | undefined;
  readonly #interval: number;
  /** The accounts of addresses with waiting requests and, while `isCounting` is true, with running requests. */
  readonly #accounts: Map<string, Account> = new Map();
  /** The account whose turn it is. */
  #firstAccount: Account | undefined;
  #lastAccount: Account | undefined;
  #isCheckScheduled = false;
  readonly #onCheck: (() => void) | undefined;

  /** @param onCheck called at each check while requests wait: a place may become free although no request has ended */
  constructor(places: Places, rate: MinimumRate, onCheck?: () => void) {
    this.#places = places;
    this.#onCheck = onCheck;
    const { minRate, minRateGrace } = rate;
    this.#interval = Math.min(MAX_CHECK_INTERVAL, Math.ceil(minRateGrace / 10));
    if (minRate > 0) this.#slowClients = new SlowClients(rate, this.#interval);
  }

  // ── waiting requests ──

  add(item: T): void {
    const account = this.#accountOf(item);
    const { last } = account;
    item.place = { since: performance.now(), account, next: undefined, previous: last };
    if (last === undefined) account.first = item;
    else (last.place as Place).next = item;
    account.last = item;
    this.length++;
    if (++account.waiting === 1) this.#appendTurn(account);
    if (!this.isCounting && this.#firstAccount !== this.#lastAccount) this.#count();
    if (!this.#isCheckScheduled) this.#scheduleCheck();
  }

  /** Removes a request that waits no longer; does nothing if it did not wait. */
  remove(item: T): void {
    const { place } = item;
    if (place === undefined) return;
    const { account, next, previous } = place;
    if (previous === undefined) account.first = next;
    else (previous.place as Place).next = next;
    if (next === undefined) account.last = previous;
    else (next.place as Place).previous = previous;
    item.place = undefined;
    this.length--;
    if (--account.waiting > 0) return;
    this.#removeTurn(account);
    this.#dropUnused(account);
  }

  /** Removes a request that gets a place, and gives its address the last turn. */
  serve(item: T): void {
    const account = item.place?.account;
    this.remove(item);
    if (account === undefined || account.waiting === 0) return;
    this.#removeTurn(account);
    this.#appendTurn(account);
  }

  /** The waiting request that gets the next place; undefined if none waits. */
  get first(): T | undefined {
    if (this.length === 0) return undefined;
    const share = this.#share;
    for (let each = this.#firstAccount; each !== undefined; each = each.next) {
      if (each.running <= share) return each.first as T;
    }
    return this.#firstAccount?.first as T | undefined;
  }

  /**
   * Yields all waiting requests, address after address: first those of the addresses that have at most their share of the
   * places. The caller may remove the yielded request.
   */
  *inOrder(): Generator<T> {
    const share = this.#share;
    for (const isOver of [false, true]) {
      for (const account of this.accounts()) {
        if (account.running > share !== isOver) continue;
        for (let item = account.first; item !== undefined;) {
          const next: Waiting | undefined = item.place?.next;
          yield item as T;
          item = next;
        }
      }
    }
  }

  /** Yields the accounts of the addresses with waiting requests, in the order of their turns. */
  *accounts(): Generator<Account> {
    for (let each = this.#firstAccount; each !== undefined;) {
      const following: Account | undefined = each.next;
      yield each;
      each = following;
    }
  }

  /**
   * Returns the request to remove from a full queue in favour of a new request: the newest of the address with the most waiting
   * requests. Undefined if the new request must be refused, because no other address has at least two waiting requests more
   * than its own.
   */
  findSurplus({ clientKey = UNKNOWN }: Claim): T | undefined {
    let most: Account | undefined;
    for (let each = this.#firstAccount; each !== undefined; each = each.next) {
      if (each.waiting > (most?.waiting ?? 0)) most = each;
    }
    const own = this.#accounts.get(clientKey)?.waiting ?? 0;
    return most !== undefined && most.waiting > own + 1 ? (most.last as T) : undefined;
  }

  // ── running requests ──

  /**
   * Counts the place of a holder for the client whose request has the place now. While `isCounting` is true, the owner calls
   * this method for each new request of a holder.
   */
  start(holder: Holder): void {
    this.end(holder);
    if (holder.claim === undefined) return;
    holder.account = this.#accountOf(holder.claim);
    holder.account.running++;
  }

  /**
   * Ends the counting of a holder's place. The owner calls this method when a holder with an account gives up its place.
   */
  end(holder: Holder): void {
    const { account } = holder;
    if (account === undefined) return;
    holder.account = undefined;
    account.running--;
    this.#dropUnused(account);
  }

  #count(): void {
    this.isCounting = true;
    for (const holder of this.#places.holders()) this.start(holder);
  }

  /** The number of places above which an address comes after the others. */
  get #share(): number {
    return Math.max(1, this.#places.taken / this.#accounts.size);
  }

  // ── within the queue ──

  #accountOf({ clientKey = UNKNOWN }: Claim): Account {
    let account = this.#accounts.get(clientKey);
    if (account === undefined) {
      account = new Account(clientKey);
      this.#accounts.set(clientKey, account);
    }
    return account;
  }

  /** Removes an account without requests, unless it is no longer in the map, which is cleared when the counting ends. */
  #dropUnused(account: Account): void {
    const { key, running, waiting } = account;
    if (running + waiting === 0 && this.#accounts.get(key) === account) this.#accounts.delete(key);
  }

  /** Gives an account the last turn. */
  #appendTurn(account: Account): void {
    const last = this.#lastAccount;
    account.previous = last;
    account.next = undefined;
    if (last === undefined) this.#firstAccount = account;
    else last.next = account;
    this.#lastAccount = account;
  }

  #removeTurn(account: Account): void {
    const { previous, next } = account;
    if (previous === undefined) this.#firstAccount = next;
    else previous.next = next;
    if (next === undefined) this.#lastAccount = previous;
    else next.previous = previous;
  }

  /** Schedules the next check of whether clients are too slow, and whether the counting can end. */
  #scheduleCheck(): void {
    this.#isCheckScheduled = true;
    startBackgroundTimer(() => {
      this.#isCheckScheduled = false;
      if (this.length > 0) {
        this.#scheduleCheck();
        this.#checkClients();
        return this.#onCheck?.();
      }
      this.isCounting = false;
      this.#accounts.clear();
      this.#slowClients?.forget();
    }, this.#interval);
  }

  #checkClients(): void {
    if (this.#slowClients === undefined) return;
    if (!this.isCounting) this.#count();
    const { length } = this;
    this.#slowClients.check(
      this.#places.holders(),
      this.#share,
      (account) => length - account.waiting,
    );
  }
}
