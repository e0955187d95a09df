/** Several upstreams as one target: which of them gets a request, and which get none because they fail. */
import { type ProxyError } from "../error.ts";
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
import { first } from "./first.ts";
import { type CheckOptions, HealthChecks } from "./healthchecks.ts";
import { leastConnections } from "./leastconnections.ts";
import { Health, OutlierDetector, outlierDefaults, type OutlierOptions } from "./outliers.ts";
import { peakEwma } from "./peakewma.ts";
import { type Chance, type Group, type Member, type Policy, realChance } from "./policy.ts";
import { RetryBudget, type RetryBudgetOptions } from "./retrybudget.ts";
import { roundRobin } from "./roundrobin.ts";
import type { PickRequest, Result, Upstreams } from "./upstreams.ts";

export { byAddress, byCookie, byHeader, byUri, consistentHash, type HashKey };
export type {
  CheckOptions,
  Group,
  Member,
  OutlierOptions,
  PickRequest,
  Policy,
  RetryBudgetOptions,
};
export type { Chance, Result, Upstreams };

/** An upstream with its share. */
export interface BalancedTarget {
  target: TargetAddress;
  /**
   * Its share of the requests relative to the others.
   * @default 1
   */
  weight?: number;
}

/** The names of the policies. */
export type PolicyName = "least_conn" | "peak_ewma" | "round_robin" | "ip_hash" | "uri" | "first";

/** How requests are spread over upstreams. */
export interface BalanceOptions {
  /**
   * Which upstream takes a request:
   *
   * - `"least_conn"`: the one of two random upstreams that has fewer requests.
   * - `"peak_ewma"`: the one of two random upstreams that has the lower latency times requests; it leaves slow upstreams.
   * - `"round_robin"`: the upstreams in turn.
   * - `"ip_hash"`, `"uri"`: the same one for the same client address, or for the same path and query.
   * - `"first"`: the first one that works; the others are standbys.
   * - a `Policy`, such as `consistentHash(byHeader("x-user"))` or `consistentHash(byCookie("session"))`.
   * @default "least_conn"
   */
  policy?: PolicyName | Policy;
  /** When an upstream that fails gets no more requests; `false` for never. */
  outliers?: OutlierOptions | false;
  /** Requests of the proxy that look whether an upstream works. None by default. */
  check?: CheckOptions;
  /**
   * Milliseconds in which an upstream that has returned gets to its full share, from a tenth on.
   * @default 10000
   */
  slowStart?: number;
  /**
   * The number of requests that an upstream answers at the same time; further requests wait. No limit by default.
   */
  maxRequests?: number;
  /**
   * The number of requests that wait when all upstreams have `maxRequests`; further ones get 503.
   * @default 100
   */
  maxQueue?: number;
  /** How many retries are allowed. */
  retryBudget?: RetryBudgetOptions;
  /** The clock and the random numbers, for tests. */
  chance?: Chance;
}

const POLICIES: Readonly<Record<PolicyName, (chance: Chance) => Policy>> = {
  least_conn: leastConnections,
  peak_ewma: peakEwma,
  round_robin: roundRobin,
  ip_hash: () => consistentHash(byAddress),
  uri: () => consistentHash(byUri),
  first,
};

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
  readonly name: string;
  readonly weight: number;
  readonly active: number;
  readonly state: "up" | "starting" | "trial" | "ejected" | "down" | "draining";
}

interface Waiter {
  readonly request: PickRequest;
  readonly tried: readonly TargetAddress[];
  readonly resolve: (target: TargetAddress | undefined) => void;
}

/** Several upstreams as one target, which can be changed while it is in use. */
export class Balancer implements Upstreams, Group {
  active = 0;
  version = 0;
  heaviest = 1;
  readonly #members: BalancedMember[] = [];
  readonly #byTarget: Map<TargetAddress, BalancedMember> = new Map();
  readonly #policy: Policy;
  readonly #options: BalanceOptions;
  readonly #chance: Chance;
  readonly #outliers: OutlierDetector | undefined;
  readonly #budget: RetryBudget;
  readonly #checks: HealthChecks | undefined;
  readonly #queue: Waiter[] = [];
  /** Those that get requests, although some may be busy; undefined after a change. */
  #able: BalancedMember[] | undefined;
  /** The records of all upstreams, in the same order. */
  #healths: readonly Health[] = [];
  /** The time until which `#able` is right, unless it changes before. */
  #ableUntil = 0;
  #isUniform = true;
  /** Whether the first upstreams are there. */
  #isInUse = false;

  constructor(targets: readonly (TargetAddress | BalancedTarget)[], options: BalanceOptions) {
    const { policy = "least_conn", outliers = {}, chance = realChance } = options;
    this.#options = options;
    this.#chance = chance;
    this.#policy = typeof policy === "object" ? policy : policyOf(policy)(chance);
    this.#budget = new RetryBudget(chance, options.retryBudget);
    const change = (): void => void (this.#able = undefined);
    if (outliers !== false) {
      this.#outliers = new OutlierDetector({ ...outlierDefaults, ...outliers }, chance, change);
    }
    if (options.check !== undefined) this.#checks = new HealthChecks(options.check);
    for (const target of targets) this.add(target);
    this.#isInUse = true;
    if (this.#members.length === 0) throw bad("balance", "give it at least one upstream");
  }

  // ── the upstreams ──

  get members(): readonly Member[] {
    return this.#members;
  }

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
    this.#able = undefined;
    while (member.active > 0) await new Promise((resolve) => setTimeout(resolve, 50));
    const index = this.#members.indexOf(member);
    if (index >= 0) this.#members.splice(index, 1);
    this.#byTarget.delete(member.target);
    this.#checks?.remove(member);
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

  /** @internal */
  start(transport: Transport): void {
    this.#checks?.start(transport, this.#members, () => {
      this.#able = undefined;
      this.#pump();
    });
  }

  /** Ends the active checks. */
  close(): void {
    this.#checks?.close();
  }

  /** @internal */
  pick(
    request: PickRequest,
    tried: readonly TargetAddress[],
  ): TargetAddress | undefined | Promise<TargetAddress | undefined> {
    if (tried.length === 0) this.#budget.deposit();
    const target = this.#choose(request, tried);
    if (target !== undefined || !this.#isFull(tried)) return target;
    const { maxQueue = 100 } = this.#options;
    if (this.#queue.length >= maxQueue) return undefined;
    return new Promise((resolve) => this.#queue.push({ request, tried, resolve }));
  }

  /** @internal */
  report({ target, status, error, latency, isOver }: Result): void {
    const member = this.#byTarget.get(target);
    if (member === undefined) return;
    // The first report of an attempt tells how it went; the second, that it is over.
    const isFirst = !isOver || status === undefined;
    if (isFirst && !isClients(error)) {
      const isFailure = status === undefined || status >= 500;
      if (!isFailure) this.#policy.observe?.(member, latency);
      this.#outliers?.record(member.health, isFailure, this.#healths);
    } else if (error !== undefined && !isClients(error)) {
      this.#outliers?.record(member.health, true, this.#healths);
    }
    if (!isOver) return;
    member.active--;
    this.active--;
    this.#pump();
  }

  /** @internal */
  mayRetry(): boolean {
    return this.#budget.withdraw();
  }

  /** @internal */
  retryAfter(): number {
    return 1;
  }

  #choose(request: PickRequest, tried: readonly TargetAddress[]): TargetAddress | undefined {
    let able: readonly BalancedMember[] = this.#refresh();
    if (tried.length > 0) able = able.filter(({ target }) => !tried.includes(target));
    if (able.length === 0) return undefined;
    let member = this.#policy.pick(able, request, this) as BalancedMember;
    if (this.#isBusy(member)) {
      able = able.filter((each) => !this.#isBusy(each));
      if (able.length === 0) return undefined;
      member = this.#policy.pick(able, request, this) as BalancedMember;
    }
    member.active++;
    this.active++;
    return member.target;
  }

  /** Whether an upstream has as many requests as it may have: one, until it has answered after an ejection. */
  #isBusy({ active, health }: BalancedMember): boolean {
    const { maxRequests = Infinity } = this.#options;
    return active >= (health.isOnTrial ? 1 : maxRequests);
  }

  /** Whether an upstream would take the request if it had not so many already. */
  #isFull(tried: readonly TargetAddress[]): boolean {
    return this.#refresh().some((member) => !tried.includes(member.target) && this.#isBusy(member));
  }

  /** Lets requests that wait be sent, as far as there is room. */
  #pump(): void {
    while (this.#queue.length > 0) {
      const { request, tried, resolve } = this.#queue[0] as Waiter;
      const target = this.#choose(request, tried);
      if (target === undefined && this.#isFull(tried)) return;
      this.#queue.shift();
      resolve(target);
    }
  }

  /** Returns those that get requests. */
  #refresh(): BalancedMember[] {
    const now = this.#chance.now();
    if (this.#able !== undefined && now < this.#ableUntil) return this.#able;
    const members = this.#members;
    this.#outliers?.sweep(this.#healths);
    const able = members.filter(isWorking);
    const isStarting = able.some((member) => member.isStarting);
    const [{ weight } = { weight: 1 }] = able;
    this.#isUniform = !isStarting && able.every((member) => member.weight === weight);
    const returns = members.flatMap(({ health }) =>
      health.ejectedUntil > 0 ? [health.ejectedUntil] : [],
    );
    // While an upstream starts slowly, its weight changes all the time.
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
    if (found === undefined) throw bad("target", `there is no upstream ${name}`);
    return found;
  }

  #changed(): void {
    this.version++;
    this.heaviest = Math.max(...this.#members.map(({ share }) => share));
    this.#healths = this.#members.map(({ health }) => health);
    this.#able = undefined;
    this.#pump();
  }
}

/**
 * Makes one target of several upstreams. It belongs to the proxies that use it: closing one of them ends its checks.
 * @example
 * ```ts
 * createProxy({ target: balance(["http://10.0.0.1:4000", "http://10.0.0.2:4000"]) });
 * ```
 * @throws TypeError that names the option and the fix
 */
export function balance(
  targets: readonly (TargetAddress | BalancedTarget)[],
  options: BalanceOptions = {},
): Balancer {
  if (!Array.isArray(targets)) {
    throw bad("balance", 'give it an array, such as balance(["http://a:1", "http://b:1"])');
  }
  return new Balancer(targets as readonly (TargetAddress | BalancedTarget)[], options);
}

/** Returns the text that identifies an upstream: its origin, or its Unix domain socket. */
function nameOf(target: TargetAddress): string {
  const { origin, socketPath } = parseTarget(target);
  return socketPath === undefined ? origin : `unix:${socketPath}`;
}

function policyOf(name: string): (chance: Chance) => Policy {
  if (Object.hasOwn(POLICIES, name)) return POLICIES[name as PolicyName];
  throw bad("policy", `use ${Object.keys(POLICIES).join(", ")}, or an object with a method pick`);
}

function isBalanced(added: TargetAddress | BalancedTarget): added is BalancedTarget {
  return typeof added === "object" && "target" in added;
}

function isWorking({ isUp, isDraining, health }: BalancedMember): boolean {
  return isUp && !isDraining && health.ejectedUntil === 0;
}

/** Whether a failure says nothing about the upstream: the client has left, or its request was wrong. */
function isClients(error: ProxyError | undefined): boolean {
  return error !== undefined && error.status >= 400 && error.status < 500;
}

function stateOf(member: BalancedMember): MemberState["state"] {
  if (member.isDraining) return "draining";
  if (!member.isUp) return "down";
  if (member.health.ejectedUntil > 0) return "ejected";
  if (member.health.isOnTrial) return "trial";
  return member.isStarting ? "starting" : "up";
}

function checkWeight(weight: number): void {
  if (typeof weight === "number" && weight > 0 && Number.isFinite(weight)) return;
  throw bad("weight", "use a number above 0");
}

function checkFits(added: BalancedMember, present: Member, all: readonly Member[]): void {
  if (all.some(({ name }) => name === added.name)) {
    throw bad("balance", `${added.name} is there twice; set its weight instead`);
  }
  const [one, other] = [parseTarget(added.target), parseTarget(present.target)];
  if (one.basePath === other.basePath && one.query === other.query) return;
  throw bad("balance", "all upstreams need the same base path and query");
}

function bad(option: string, fix: string): TypeError {
  return new TypeError(`fetchway: bad option \`${option}\`: ${fix}`);
}
