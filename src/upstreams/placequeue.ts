import type { TargetAddress } from "../target/target.ts";
import { type BalancedMember, isWorking } from "./member.ts";
import type { PickRequest } from "./upstreams.ts";

/** A choice that has to wait, because the upstreams that could take the request have as many as they may have. */
export class Busy {
  /** The upstream that the request waits for; undefined if it takes the first place that is free at any of them. */
  readonly member: BalancedMember | undefined;

  constructor(member?: BalancedMember) {
    this.member = member;
  }
}

/** A choice that waits for any upstream. */
export const ANY_BUSY: Busy = new Busy();

/** Takes a place for an attempt; returns undefined if no upstream can take it, now or later. */
type TakePlace = (
  request: PickRequest,
  tried: readonly TargetAddress[],
) => BalancedMember | Busy | undefined;

interface Waiter {
  readonly request: PickRequest;
  readonly tried: readonly TargetAddress[];
  /** The upstream that it waits for, and for no other. */
  member: BalancedMember | undefined;
  readonly timer: ReturnType<typeof setTimeout> | undefined;
  readonly resolve: (target: TargetAddress | undefined) => void;
  readonly reject: (thrown: unknown) => void;
}

/**
 * The requests that wait for a place at an upstream, in the order of their arrival.
 *
 * All upstreams share one queue: with a queue for each, a request would wait behind slow ones while another upstream is
 * free. Only a request that must go to one upstream waits for that one, and lets others pass.
 */
export class PlaceQueue {
  readonly #waiters: Set<Waiter> = new Set();
  readonly #takePlace: TakePlace;
  readonly #timeout: number;

  /** @param timeout milliseconds that a request waits at most; 0 for no limit */
  constructor(takePlace: TakePlace, timeout: number) {
    this.#takePlace = takePlace;
    this.#timeout = timeout;
  }

  /** The number of requests that wait. */
  get size(): number {
    return this.#waiters.size;
  }

  /** Whether there is room for one more request. Requests whose clients have left take none. */
  hasRoom(limit: number): boolean {
    if (this.#waiters.size < limit) return true;
    this.dropAborted();
    return this.#waiters.size < limit;
  }

  /** Adds a request, and resolves when it has a place, or can get none. */
  wait(
    request: PickRequest,
    tried: readonly TargetAddress[],
    { member }: Busy,
  ): Promise<TargetAddress | undefined> {
    return new Promise((resolve, reject) => {
      const leave = (): void => this.#settle(waiter, undefined);
      const timer = this.#timeout > 0 ? setTimeout(leave, this.#timeout) : undefined;
      request.leave = leave;
      const waiter: Waiter = { request, tried, member: undefined, timer, resolve, reject };
      tie(waiter, member);
      this.#waiters.add(waiter);
    });
  }

  /**
   * Gives free places to the requests that wait.
   * @param hasChanged whether upstreams were added, removed or checked, so that each request has to be looked at
   */
  pump(hasChanged = false): void {
    for (const waiter of this.#waiters) {
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
        this.#settle(waiter, chosen?.target);
        continue;
      }
      tie(waiter, chosen.member);
      // A request that any upstream may take finds none: no other request finds one either.
      if (chosen.member === undefined && tried.length === 0 && !hasChanged) return;
    }
  }

  /** Removes requests whose clients have left. */
  dropAborted(): void {
    for (const waiter of this.#waiters) {
      if (waiter.request.isAborted === true) this.#settle(waiter, undefined);
    }
  }

  #settle(waiter: Waiter, target: TargetAddress | undefined): void {
    this.#remove(waiter);
    waiter.resolve(target);
  }

  #remove(waiter: Waiter): void {
    this.#waiters.delete(waiter);
    clearTimeout(waiter.timer);
    tie(waiter, undefined);
  }
}

/** Sets the upstream that a request waits for. */
function tie(waiter: Waiter, member: BalancedMember | undefined): void {
  if (waiter.member !== undefined) waiter.member.waiting--;
  waiter.member = member;
  if (member !== undefined) member.waiting++;
}
