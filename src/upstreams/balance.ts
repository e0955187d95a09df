/**
 * Several upstreams as one target: which of them gets a request, and which get none because they fail.
 * @module
 */
import type { ProxyError, ProxyErrorCode } from "../error.ts";
import { badOption } from "../options/misuse.ts";
import { isApp } from "../request/app.ts";
import { parseTarget, type TargetAddress } from "../request/target.ts";
import type { Transport } from "../transport.ts";
import {
  byAddress,
  byCookie,
  byHeader,
  byUri,
  consistentHash,
  type HashKey,
} from "./consistenthash.ts";
import {
  type BalancedTarget,
  type BalanceOptions,
  checkBalanceOptions,
  POLICIES,
  type PolicyName,
} from "./balanceoptions.ts";
import { choose } from "./failover.ts";
import { type CheckOptions, HealthChecks } from "./healthchecks.ts";
import { Health, OutlierDetector, outlierDefaults, type OutlierOptions } from "./outliers.ts";
import { type Chance, type Group, type Member, type Policy, realChance } from "./policy.ts";
import { RetryBudget, type RetryBudgetOptions } from "./retrybudget.ts";
import type { Choose, PickRequest, Result, Upstreams } from "./upstreams.ts";

export { byAddress, byCookie, byHeader, byUri, choose, consistentHash, type HashKey };
export type {
  BalancedTarget,
  BalanceOptions,
  CheckOptions,
  Group,
  Member,
  OutlierOptions,
  PickRequest,
  Policy,
  PolicyName,
  RetryBudgetOptions,
};
export type { Chance, Choose, Result, Upstreams };

/** One upstream, with everything that is known of it. */
class BalancedMember implements Member {
  readonly target: TargetAddress;
  readonly name: string;
  readonly health: Health = new Health();
  /** Whether active checks have found it working. */
  isUp = true;
  /** Whether it takes no new requests, because it is being removed. */
  isDraining = false;
  active = 0;
  /** The number of requests that try whether it works again, and are not answered. */
  trials = 0;
  /** Called when it is removed and has no requests. */
  onIdle: (() => void)[] = [];
  /** The weight that was set. */
  share: number;
  readonly #now: () => number;
  readonly #slowStart: number;

  constructor(target: TargetAddress, share: number, slowStart: number, now: () => number) {
    this.target = target;
    this.name = nameOf(target);
    this.share = share;
    this.#slowStart = slowStart;
    this.#now = now;
  }

  get weight(): number {
    if (!this.isStarting) return this.share;
    const passed = (this.#now() - this.health.returnedAt) / this.#slowStart;
    return this.share * Math.max(0.1, passed);
  }

  /** Whether it gets its share only gradually, because it has just returned. */
  get isStarting(): boolean {
    return this.health.returnedAt + this.#slowStart > this.#now();
  }
}

/** The state of one upstream, for metrics and status pages. */
export interface MemberState {
  /** A text that identifies the upstream, such as `http://10.0.0.1:4000`. */
  readonly name: string;
  /** Its share of the requests at present. */
  readonly weight: number;
  /** The number of requests that were sent to it and are not over. */
  readonly active: number;
  /**
   * `up`; `starting`: it gets its share gradually; `trial`: it was ejected, and gets one request at a time; `ejected`; `down`:
   * active checks have failed; `draining`: it is being removed.
   */
  readonly state: "up" | "starting" | "trial" | "ejected" | "down" | "draining";
}

interface Waiter {
  readonly request: PickRequest;
  readonly tried: readonly TargetAddress[];
  readonly resolve: (target: TargetAddress | undefined) => void;
  readonly reject: (thrown: unknown) => void;
}

/** Several upstreams as one target, which can be changed while it is in use. */
export class Balancer implements Upstreams, Group {
  /** The number of requests that were sent to all upstreams and are not over. */
  active = 0;
  /** A number that changes when upstreams are added or removed, or their weights are set. */
  version = 0;
  /** The highest weight. */
  heaviest = 1;
  readonly #members: BalancedMember[] = [];
  readonly #byTarget: Map<TargetAddress, BalancedMember> = new Map();
  readonly #policy: Policy;
  readonly #options: BalanceOptions;
  readonly #chance: Chance;
  readonly #outliers: OutlierDetector | undefined;
  readonly #budget: RetryBudget;
  readonly #checks: HealthChecks | undefined;
  #queue: Waiter[] = [];
  /** Those that get requests, although some may be busy; undefined after a change. */
  #able: BalancedMember[] | undefined;
  /** The records of the upstreams that may be ejected: not of those that active checks find down, or that are removed. */
  #healths: readonly Health[] = [];
  /** The time until which `#able` is right, unless it changes before. */
  #ableUntil = 0;
  #isUniform = true;
  /** Whether the first upstreams are there. */
  #isInUse = false;

  /** Use `balance`. */
  constructor(targets: readonly (TargetAddress | BalancedTarget)[], options: BalanceOptions) {
    checkBalanceOptions(options);
    const { policy = "least_conn", outliers = {}, chance = realChance } = options;
    this.#options = options;
    this.#chance = chance;
    this.#policy = typeof policy === "object" ? policy : POLICIES[policy](chance);
    this.#budget = new RetryBudget(chance, options.retryBudget);
    const change = (): void => void (this.#able = undefined);
    if (outliers !== false) {
      this.#outliers = new OutlierDetector({ ...outlierDefaults, ...outliers }, chance, change);
    }
    if (options.check !== undefined) this.#checks = new HealthChecks(options.check);
    for (const target of targets) this.add(target);
    this.#isInUse = true;
    if (this.#members.length === 0) throw badOption("balance", "give it at least one upstream");
  }

  // ── the upstreams ──

  /** All upstreams, also those that take no requests at present. */
  get members(): readonly Member[] {
    return this.#members;
  }

  /** Whether all upstreams have the same weight at present. */
  get isUniform(): boolean {
    this.#refresh();
    return this.#isUniform;
  }

  /** Returns the state of each upstream. */
  states(): MemberState[] {
    this.#refresh();
    return this.#members.map((member) => ({
      name: member.name,
      weight: member.weight,
      active: member.active,
      state: stateOf(member),
    }));
  }

  /**
   * Adds an upstream.
   * @throws TypeError for one that is there already, or has another base path or query than the others
   */
  add(added: TargetAddress | BalancedTarget): void {
    const { target, weight = 1 } = isBalanced(added) ? added : { target: added };
    checkWeight(weight);
    const { now } = this.#chance;
    const member = new BalancedMember(target, weight, this.#options.slowStart ?? 10_000, now);
    if (this.#checks !== undefined && parseTarget(target).app !== undefined) {
      throw badOption("check", "an app in this process cannot be checked; leave it out");
    }
    const [present] = this.#members;
    if (present !== undefined) checkFits(member, present, this.#members);
    // One that is added later begins slowly: its caches and connections are cold.
    if (this.#isInUse) member.health.returnedAt = now();
    this.#members.push(member);
    this.#byTarget.set(target, member);
    this.#checks?.add(member);
    this.#changed();
  }

  /** Removes an upstream when its requests are over; it gets no new ones. Resolves when it is removed. */
  async remove(target: TargetAddress): Promise<void> {
    const member = this.#find(target);
    member.isDraining = true;
    this.#checks?.remove(member);
    this.#changed();
    if (member.active > 0) await new Promise<void>((resolve) => member.onIdle.push(resolve));
    const index = this.#members.indexOf(member);
    if (index >= 0) this.#members.splice(index, 1);
    this.#byTarget.delete(member.target);
    this.#changed();
  }

  /** Sets the share of an upstream. */
  setWeight(target: TargetAddress, weight: number): void {
    checkWeight(weight);
    const member = this.#find(target);
    member.share = weight;
    this.#changed();
  }

  // ── for the proxy ──

  /** Picks the upstream of a request. The proxy calls it. */
  readonly choose: Choose = choose;

  /** Begins the active checks. The proxy calls it. */
  start(transport: Transport): void {
    if (this.#checks === undefined) return;
    if (transport.capabilities.background === false) {
      const fix =
        "nothing runs between requests here; leave it out: failures of requests still eject upstreams";
      throw badOption("check", `${fix} (transport ${transport.name})`);
    }
    this.#checks.start(transport, this.#members, () => this.#changed());
  }

  /** Ends the active checks. */
  close(): void {
    this.#checks?.close();
  }

  /** Picks an upstream for an attempt. The proxy calls it. */
  pick(
    request: PickRequest,
    tried: readonly TargetAddress[],
  ): TargetAddress | undefined | Promise<TargetAddress | undefined> {
    if (tried.length === 0) this.#budget.deposit();
    const target = this.#choose(request, tried);
    if (target !== undefined || !this.#isFull(tried)) return target;
    const { maxQueue = 100 } = this.#options;
    if (this.#queue.length >= maxQueue) this.#dropAborted();
    if (this.#queue.length >= maxQueue) return undefined;
    return new Promise((resolve, reject) => {
      this.#queue.push({ request, tried, resolve, reject });
    });
  }

  /** Takes the result of an attempt. The proxy calls it. */
  report({ target, status, error, latency, isOver }: Result): void {
    const member = this.#byTarget.get(target);
    if (member === undefined) return;
    // The first report of an attempt tells how it went; the second, that it is over.
    const isFirst = !isOver || status === undefined;
    if (isFirst && member.trials > 0) member.trials--;
    if (isFirst && tellsOfUpstream(error)) {
      const isFailure = status === undefined || status >= 500;
      if (!isFailure) this.#policy.observe?.(member, latency);
      this.#outliers?.record(member.health, isFailure, this.#healths);
    } else if (error !== undefined && tellsOfUpstream(error)) {
      this.#outliers?.record(member.health, true, this.#healths);
    }
    if (!isOver) return;
    member.active--;
    this.active--;
    if (member.active === 0) for (const resolve of member.onIdle.splice(0)) resolve();
    this.#pump();
  }

  /** Whether the retry budget allows one more attempt. The proxy calls it. */
  mayRetry(): boolean {
    return this.#budget.withdraw();
  }

  /** Returns the seconds after which a client that got 503 may try again. */
  retryAfter(): number {
    return 1;
  }

  #choose(request: PickRequest, tried: readonly TargetAddress[]): TargetAddress | undefined {
    let able: readonly BalancedMember[] = this.#refresh();
    if (tried.length > 0) able = able.filter(({ target }) => !tried.includes(target));
    if (able.length === 0) return undefined;
    let member = this.#ask(able, request);
    if (this.#isBusy(member)) {
      able = able.filter((each) => !this.#isBusy(each));
      if (able.length === 0) return undefined;
      member = this.#ask(able, request);
    }
    if (member.health.isOnTrial) member.trials++;
    member.active++;
    this.active++;
    return member.target;
  }

  #ask(able: readonly BalancedMember[], request: PickRequest): BalancedMember {
    const member = this.#policy.pick(able, request, this) as BalancedMember | undefined;
    if (member !== undefined && this.#byTarget.get(member.target) === member) return member;
    throw badOption("policy", "its method pick must return one of the upstreams that it is given");
  }

  /**
   * Whether an upstream has as many requests as it may have. After an ejection, it gets one until it has answered;
   * requests and tunnels that it has had from before do not count for that.
   */
  #isBusy({ active, trials, health }: BalancedMember): boolean {
    const { maxRequests = Infinity } = this.#options;
    return active >= maxRequests || (health.isOnTrial && trials > 0);
  }

  /** Whether an upstream would take the request if it had not so many already. */
  #isFull(tried: readonly TargetAddress[]): boolean {
    return this.#refresh().some((member) => !tried.includes(member.target) && this.#isBusy(member));
  }

  /** Lets requests that wait be sent, as far as there is room. */
  #pump(): void {
    if (this.#queue.length === 0) return;
    this.#dropAborted();
    const waiting = this.#queue;
    this.#queue = [];
    let hasRoom = true;
    for (const waiter of waiting) {
      const { request, tried, resolve, reject } = waiter;
      try {
        const target = hasRoom ? this.#choose(request, tried) : undefined;
        if (target !== undefined || !this.#isFull(tried)) {
          resolve(target);
          continue;
        }
      } catch (thrown) {
        reject(thrown);
        continue;
      }
      this.#queue.push(waiter);
      // One that waits for any upstream waits for all: only a repeated request may have to let others pass.
      if (tried.length === 0) hasRoom = false;
    }
  }

  /** Takes requests out of the queue whose clients have left. */
  #dropAborted(): void {
    this.#queue = this.#queue.filter(({ request, resolve }) => {
      if (request.isAborted === true) resolve(undefined);
      return request.isAborted !== true;
    });
  }

  /** Returns those that get requests. */
  #refresh(): BalancedMember[] {
    const now = this.#chance.now();
    if (this.#able !== undefined && now < this.#ableUntil) return this.#able;
    const members = this.#members;
    this.#outliers?.sweep(this.#healths);
    let able = members.filter(isWorking);
    // Failures of the others may leave only ejected ones: those may still work.
    if (able.length === 0) able = members.filter(mayWork);
    const isStarting = able.some((member) => member.isStarting);
    const [{ weight } = { weight: 1 }] = able;
    this.#isUniform = !isStarting && able.every((member) => member.weight === weight);
    const returns = members.flatMap(({ health }) =>
      health.ejectedUntil > 0 ? [health.ejectedUntil] : [],
    );
    // During a slow start, the weight of an upstream grows continuously: compute it again after 100 ms.
    this.#ableUntil = Math.min(
      this.#outliers?.nextSweep ?? Infinity,
      isStarting ? now + 100 : Infinity,
      ...returns,
    );
    return (this.#able = able);
  }

  #find(target: TargetAddress): BalancedMember {
    const name = nameOf(target);
    const found = this.#members.find((member) => member.name === name);
    if (found === undefined) throw badOption("target", `there is no upstream ${name}`);
    return found;
  }

  #changed(): void {
    this.version++;
    this.heaviest = this.#members.reduce((most, { share }) => Math.max(most, share), 0);
    this.#healths = this.#members.filter(mayWork).map(({ health }) => health);
    this.#able = undefined;
    this.#pump();
  }
}

/**
 * Makes one target of several upstreams. It belongs to the proxies that use it: closing one of them ends its checks.
 * @example
 * ```ts
 * import { createProxy } from "fetchway";
 * import { balance } from "fetchway/upstreams";
 *
 * createProxy({ target: balance(["http://10.0.0.1:4000", "http://10.0.0.2:4000"]) });
 * ```
 * @throws TypeError that names the option and the fix
 */
export function balance(
  targets: readonly (TargetAddress | BalancedTarget)[],
  options: BalanceOptions = {},
): Balancer {
  if (!Array.isArray(targets)) {
    throw badOption("balance", 'give it an array, such as balance(["http://a:1", "http://b:1"])');
  }
  return new Balancer(targets as readonly (TargetAddress | BalancedTarget)[], options);
}

/** Returns the text that identifies an upstream: its origin, or its Unix domain socket. */
function nameOf(target: TargetAddress): string {
  const { origin, socketPath } = parseTarget(target);
  return socketPath === undefined ? origin : `unix:${socketPath}`;
}

function isBalanced(added: TargetAddress | BalancedTarget): added is BalancedTarget {
  if (typeof added !== "object" || added === null || isApp(added) || !("target" in added))
    return false;
  const wrong = Object.keys(added).find((name) => name !== "target" && name !== "weight");
  if (wrong === undefined) return true;
  throw badOption("balance", `\`${wrong}\` is unknown; use { target, weight }`);
}

function mayWork({ isUp, isDraining }: BalancedMember): boolean {
  return isUp && !isDraining;
}

function isWorking(member: BalancedMember): boolean {
  return mayWork(member) && member.health.ejectedUntil === 0;
}

/**
 * Whether a result tells about the upstream. The errors of a client, of the app's code and of limits of the proxy do not:
 * clients could otherwise have upstreams ejected.
 */
function tellsOfUpstream(error: ProxyError | undefined): boolean {
  if (error === undefined) return true;
  return (error.status < 400 || error.status >= 500) && !OWN.has(error.code);
}

/** The errors of requests that the proxy has not sent. */
const OWN: ReadonlySet<ProxyErrorCode> = new Set<ProxyErrorCode>([
  "http_request_error",
  "proxy_internal_error",
  "connection_limit_reached",
  "destination_unavailable",
]);

function stateOf(member: BalancedMember): MemberState["state"] {
  if (member.isDraining) return "draining";
  if (!member.isUp) return "down";
  if (member.health.ejectedUntil > 0) return "ejected";
  if (member.health.isOnTrial) return "trial";
  return member.isStarting ? "starting" : "up";
}

function checkWeight(weight: number): void {
  if (typeof weight === "number" && weight > 0 && Number.isFinite(weight)) return;
  throw badOption("weight", "use a number above 0");
}

function checkFits(added: BalancedMember, present: Member, all: readonly Member[]): void {
  if (all.some(({ name }) => name === added.name)) {
    throw badOption("balance", `${added.name} is there twice; set its weight instead`);
  }
  const [one, other] = [parseTarget(added.target), parseTarget(present.target)];
  if (one.basePath === other.basePath && one.query === other.query) return;
  throw badOption("balance", "all upstreams need the same base path and query");
}
