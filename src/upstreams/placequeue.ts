import { ProxyError } from "../error.ts";
import type { TargetAddress } from "../target/target.ts";
import { AddressQueue } from "../transport/addressqueue.ts";
import type { Account, Claim, Holder, Places, Waiting } from "../transport/claim.ts";
import type { MinimumRate } from "../transport/slowclients.ts";
import { type BalancedMember, isWorking } from "./member.ts";
import type { PickRequest } from "./upstreams.ts";

/** The result of a pick that has to wait, because the upstreams that could take the request are busy. */
export class Busy {
  /** The upstream that the request waits for; undefined if the request takes the first free place at any upstream. */
  readonly member: BalancedMember | undefined;

  constructor(member?: BalancedMember) {
    this.member = member;
  }
}

/** The result of a pick that has to wait for a free place at any upstream. */
export const ANY_BUSY: Busy = new Busy();

/** Takes a place for an attempt. Returns a `Busy` if the attempt has to wait; undefined if no upstream can take it. */
type TakePlace = (
  request: PickRequest,
  tried: readonly TargetAddress[],
) => BalancedMember | Busy | undefined;

interface Waiter extends Waiting {
  readonly request: PickRequest;
  readonly tried: readonly TargetAddress[];
  /** The only upstream that the request waits for; undefined if it waits for any upstream. */
  member: BalancedMember | undefined;
  readonly timer: ReturnType<typeof setTimeout> | undefined;
  readonly resolve: (target: TargetAddress | undefined) => void;
  readonly reject: (thrown: unknown) => void;
}

/** The limits of the queue. */
interface PlaceLimits extends MinimumRate {
  /** The maximum number of requests that each upstream gets at the same time. */
  readonly maxRequests: number;
  /** The maximum wait of a request in milliseconds; 0 for no limit. */
  readonly queueTimeout: number;
}

/** The place of an attempt at an upstream. */
class TakenPlace implements Holder {
  account: Account | undefined;
  readonly claim: Claim;

  constructor(claim: Claim) {
    this.claim = claim;
    this.account = undefined;
  }
}

/** The attempts that have a place. The key is the request with which `pick` was called for the attempt. */
class TakenPlaces implements Places {
  readonly byRequest: Map<PickRequest, TakenPlace> = new Map();

  get taken(): number {
    return this.byRequest.size;
  }

  holders(): Iterable<Holder> {
    return this.byRequest.values();
  }
}

/**
 * The requests that wait for a place at an upstream. The addresses of clients take turns.
 *
 * All upstreams share one queue. With one queue for each upstream, a request would wait behind slow requests while another
 * upstream is free. Only a request that must go to a certain upstream waits for that one; later requests may then get a
 * place before it.
 */
export class PlaceQueue {
  readonly #places = new TakenPlaces();
  readonly #queue: AddressQueue<Waiter>;
  readonly #takePlace: TakePlace;
  readonly #limits: PlaceLimits;

  constructor(takePlace: TakePlace, limits: PlaceLimits) {
    this.#takePlace = takePlace;
    this.#limits = limits;
    const rate = { ...limits, rateName: "minRate of balance" };
    // No request comes or ends when the ejection of an upstream is over, so each check of the queue looks for places, too.
    this.#queue = new AddressQueue(this.#places, rate, () => this.pump());
  }

  /** The number of requests that wait. */
  get size(): number {
    return this.#queue.length;
  }

  // ── the places ──

  /** Records that an attempt has a place. Without `maxRequests`, requests wait only for a probe, and nothing is recorded. */
  take(request: PickRequest): void {
    if (this.#limits.maxRequests === Infinity || request.claim === undefined) return;
    const place = new TakenPlace(request.claim);
    this.#places.byRequest.set(request, place);
    if (this.#queue.isCounting) this.#queue.start(place);
  }

  /** Records that an attempt is over. */
  free(request: PickRequest | undefined): void {
    if (request === undefined) return;
    const place = this.#places.byRequest.get(request);
    if (place === undefined) return;
    this.#queue.end(place);
    this.#places.byRequest.delete(request);
  }

  // ── the requests that wait ──

  /**
   * Whether the queue has room for one more request. A full queue makes room by refusing the newest request of the client
   * address with the most waiting requests, unless the address of the new request has about as many.
   */
  hasRoom(limit: number, request: PickRequest): boolean {
    if (this.size < limit) return true;
    // Aborted requests, such as those of clients that have disconnected, need no room.
    this.dropAborted();
    if (this.size < limit) return true;
    const surplus = this.#queue.findSurplus(request.claim ?? {});
    if (surplus !== undefined) this.#refuse(surplus, describeFullQueue(limit));
    else request.refusal = this.#limitReached(describeFullQueue(limit));
    return surplus !== undefined;
  }

  /** Adds a request. Resolves when the request has a place, or can get none. */
  wait(
    request: PickRequest,
    tried: readonly TargetAddress[],
    { member }: Busy,
  ): Promise<TargetAddress | undefined> {
    const { queueTimeout } = this.#limits;
    return new Promise((resolve, reject) => {
      const timer =
        queueTimeout > 0
          ? setTimeout(() => this.#refuse(waiter, describeWait(queueTimeout)), queueTimeout)
          : undefined;
      const waiter: Waiter = {
        request,
        tried,
        member: undefined,
        timer,
        resolve,
        reject,
        place: undefined,
        clientKey: request.claim?.clientKey,
      };
      request.leave = () => this.#settle(waiter, undefined);
      request.explainTimeout = () => this.#explainTimeout(waiter);
      tie(waiter, member);
      this.#queue.add(waiter);
    });
  }

  /**
   * Gives free places to the requests that wait.
   * @param hasChanged whether the upstreams, their weights or the results of their checks have changed, so that a place must be
   * tried for each waiting request
   */
  pump(hasChanged = false): void {
    // Check the size first, because this method is called at the end of every request, and an iterator would be a new
    // object. Start again after each request that gets a place, because that changes which address is next.
    while (this.size > 0 && this.#pumpOne(hasChanged));
  }

  /** Gives a place to the first request in the queue that can get one. Returns whether a request got a place. */
  #pumpOne(hasChanged: boolean): boolean {
    for (const waiter of this.#queue.inOrder()) {
      const { request, tried, member } = waiter;
      if (request.isAborted === true) {
        this.#settle(waiter, undefined);
        continue;
      }
      if (member !== undefined && member.isFull && isWorking(member)) continue;
      tie(waiter, undefined);
      let chosen: BalancedMember | Busy | undefined;
      try {
        chosen = this.#takePlace(request, tried);
      } catch (thrown) {
        this.#remove(waiter);
        waiter.reject(thrown);
        continue;
      }
      if (!(chosen instanceof Busy)) {
        this.#queue.serve(waiter);
        this.#settle(waiter, chosen?.target);
        if (chosen !== undefined) return true;
        continue;
      }
      tie(waiter, chosen.member);
      // If a request that may go to any upstream gets no place, no other request gets one either.
      if (chosen.member === undefined && tried.length === 0 && !hasChanged) return false;
    }
    return false;
  }

  /** Removes the requests that were aborted, for example because their clients have disconnected. */
  dropAborted(): void {
    for (const waiter of this.#queue.inOrder()) {
      if (waiter.request.isAborted === true) this.#settle(waiter, undefined);
    }
  }

  /** Ends a request's wait without giving it a place. */
  #refuse(waiter: Waiter, what: string): void {
    waiter.request.refusal = this.#limitReached(what);
    this.#settle(waiter, undefined);
  }

  /**
   * Returns the error for a request whose time limit passes while it waits. The error names the queue, because no upstream
   * is at fault.
   */
  #explainTimeout({ place }: Waiter): ProxyError | undefined {
    return place && this.#limitReached(describeWait(performance.now() - place.since));
  }

  #limitReached(what: string): ProxyError {
    const { maxRequests } = this.#limits;
    const state =
      maxRequests === Infinity
        ? "is down, ejected, or half-open with an unanswered probe"
        : `has the ${maxRequests} requests that maxRequests allows, or is down or ejected`;
    return new ProxyError("connection_limit_reached", {
      message: `${what}: every upstream ${state}`,
      retryAfter: 1,
    });
  }

  #settle(waiter: Waiter, target: TargetAddress | undefined): void {
    this.#remove(waiter);
    waiter.resolve(target);
  }

  #remove(waiter: Waiter): void {
    this.#queue.remove(waiter);
    clearTimeout(waiter.timer);
    tie(waiter, undefined);
  }
}

function describeFullQueue(limit: number): string {
  return `${limit} requests wait (maxQueue)`;
}

function describeWait(ms: number): string {
  return `no place became free within ${Math.round(ms)} ms`;
}

/** Sets the upstream that a request waits for, and updates the numbers of requests that wait. */
function tie(waiter: Waiter, member: BalancedMember | undefined): void {
  if (waiter.member !== undefined) waiter.member.waiting--;
  waiter.member = member;
  if (member !== undefined) member.waiting++;
}
