import { parseTarget, type TargetAddress } from "../target/target.ts";
import type { UpstreamState } from "../transport/stats.ts";
import type { Checked } from "./healthchecks.ts";
import { Health } from "./outliers.ts";
import type { Member } from "./policy.ts";
import type { PickRequest, StateChange } from "./upstreams.ts";

/** Milliseconds after which another request may become the probe, if the present probe was not answered. */
const PROBE_TIMEOUT = 30_000;

/** The limits that all upstreams of a balanced target share. */
export interface MemberLimits {
  /** The maximum number of requests that an upstream gets at the same time. */
  readonly maxRequests: number;
  /** The duration of the slow start in milliseconds. */
  readonly slowStart: number;
  /** Returns the milliseconds on a clock that never goes back. */
  readonly now: () => number;
}

/** One upstream of a balanced target: its weight, its health, and the requests that it has. */
export class BalancedMember implements Member, Checked {
  readonly target: TargetAddress;
  readonly name: string;
  readonly health: Health = new Health();
  /** Whether the upstream takes no new requests, because it is being removed. */
  isDraining = false;
  active = 0;
  /** The number of requests that wait for this upstream, and for no other. */
  waiting = 0;
  /** The number of attempts at the upstream since it was added. */
  requests = 0;
  /** The number of attempts at the upstream that have failed. */
  failures = 0;
  /** The state after the last change, as `onStateChange` reports it. */
  outage: StateChange["state"] = "up";
  /** The reason for the last change, and its time in milliseconds since 1970; undefined before the first one. */
  lastChange: { readonly reason: string; readonly since: number } | undefined;
  /** The request that tests whether the upstream works again; undefined once the request is answered or has failed. */
  probe: PickRequest | undefined;
  /** The time at which the probe was sent. */
  probedAt = 0;
  /** The callbacks that are called when the upstream has no more requests. */
  onIdle: (() => void)[] = [];
  /** The weight that was set for the upstream. */
  share: number;
  #isUp = true;
  readonly #limits: MemberLimits;

  constructor(target: TargetAddress, share: number, limits: MemberLimits) {
    this.target = target;
    this.name = nameOf(target);
    this.share = share;
    this.#limits = limits;
  }

  /** False while active checks find that the upstream is down. */
  get isUp(): boolean {
    return this.#isUp;
  }

  /**
   * Sets the result of the checks. Once the checks find that the upstream works again, the upstream gets its share
   * gradually, as after an ejection.
   */
  set isUp(isUp: boolean) {
    if (isUp && !this.#isUp) this.health.startSlowly(this.#limits.now());
    this.#isUp = isUp;
  }

  get ejection(): number {
    return this.health.isOut ? this.health.lastEjection : 0;
  }

  endEjection(): void {
    this.health.comeBack(this.#limits.now());
    this.probe = undefined;
  }

  /** Whether the upstream has `maxRequests` requests. */
  get isFull(): boolean {
    return this.active >= this.#limits.maxRequests;
  }

  /**
   * Whether the upstream takes no further request at present, because it is full or half-open. A half-open upstream gets one
   * request as a probe, and no other request until the probe is answered. A client can delay the answer by sending its body
   * slowly, so another request becomes the probe after `PROBE_TIMEOUT`.
   */
  get isBusy(): boolean {
    if (this.isFull) return true;
    if (!this.health.isHalfOpen || this.probe === undefined) return false;
    return this.#limits.now() < this.probedAt + PROBE_TIMEOUT;
  }

  get weight(): number {
    if (!this.isStarting) return this.share;
    const { now, slowStart } = this.#limits;
    const passed = (now() - this.health.returnedAt) / slowStart;
    return this.share * Math.max(0.1, passed);
  }

  /** Whether the upstream gets its share only gradually, because it was just added or has just returned. */
  get isStarting(): boolean {
    const { now, slowStart } = this.#limits;
    return this.health.returnedAt + slowStart > now();
  }
}

/** Returns the text that identifies an upstream: its origin, perhaps with an address, or its Unix domain socket. */
export function nameOf(target: TargetAddress): string {
  const { origin, socketPath, address } = parseTarget(target);
  if (address !== undefined) return `${origin} (${address})`;
  return socketPath === undefined ? origin : `unix:${socketPath}`;
}

/** Whether an upstream is neither down nor being removed. It may be ejected. */
export function mayWork({ isUp, isDraining }: BalancedMember): boolean {
  return isUp && !isDraining;
}

/** Whether an upstream is neither down, nor being removed, nor ejected. It may be half-open. */
export function isWorking(member: BalancedMember): boolean {
  return mayWork(member) && member.health.ejectedUntil === 0;
}

/** Whether an upstream takes a further request at present. */
export function isFree({ isBusy }: BalancedMember): boolean {
  return !isBusy;
}

/** Returns the state of an upstream as `onStateChange` reports it. */
export function outageOf({ isUp, health }: BalancedMember): StateChange["state"] {
  if (!isUp) return "down";
  return health.isOut ? "ejected" : "up";
}

/** Returns the state of an upstream for `stats()`. */
export function stateOf(member: BalancedMember): UpstreamState["state"] {
  if (member.isDraining) return "draining";
  if (!member.isUp) return "down";
  if (member.health.ejectedUntil > 0) return "ejected";
  if (member.health.isHalfOpen) return "half-open";
  return member.isStarting ? "starting" : "up";
}
