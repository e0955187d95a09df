/**
 * Several upstreams as one target: `fetchway/upstreams`. The target picks an upstream for each request, and ejects
 * upstreams that fail.
 * @module
 */
import { badOption } from "../misuse.ts";
import { isApp } from "../target/app.ts";
import { parseTarget, type TargetAddress, assertReachable } from "../target/target.ts";
import type { Transport } from "../transport/port.ts";
import type { UpstreamState } from "../transport/stats.ts";
import {
  type BalancedTarget,
  type BalanceOptions,
  checkBalanceOptions,
  POLICIES,
  type PolicyName,
} from "./balanceoptions.ts";
import {
  byAddress,
  byCookie,
  byHeader,
  byUri,
  consistentHash,
  type HashKey,
  type HashOptions,
} from "./consistenthash.ts";
import { choose } from "./failover.ts";
import { type CheckOptions, HealthChecks } from "./healthchecks.ts";
import { hasHostName, HostName, HostNames, type ResolveOptions } from "./hostnames.ts";
import {
  BalancedMember,
  isFree,
  isWorking,
  type MemberLimits,
  mayWork,
  nameOf,
  outageOf,
  stateOf,
} from "./member.ts";
import {
  type Health,
  OutlierDetector,
  outlierDefaults,
  type OutlierOptions,
  isAboutUpstream,
} from "./outliers.ts";
import { ANY_BUSY, Busy, PlaceQueue } from "./placequeue.ts";
import { type Chance, type Group, type Member, type Policy, realChance, waits } from "./policy.ts";
import { RetryBudget, type RetryBudgetOptions } from "./retrybudget.ts";
import type { SpreadName } from "./spread.ts";
import { sticky, type StickyOptions } from "./sticky.ts";
import { type CookieOptions, StickyCookie } from "./stickycookie.ts";
import type {
  Choose,
  ClientKeeper,
  PickRequest,
  Result,
  StateChange,
  Upstreams,
} from "./upstreams.ts";

export {
  byAddress,
  byCookie,
  byHeader,
  byUri,
  choose,
  consistentHash,
  type HashKey,
  type HashOptions,
  sticky,
  type StickyOptions,
};
export type {
  BalancedTarget,
  BalanceOptions,
  CheckOptions,
  ClientKeeper,
  CookieOptions,
  Group,
  Member,
  OutlierOptions,
  PickRequest,
  Policy,
  PolicyName,
  ResolveOptions,
  RetryBudgetOptions,
  SpreadName,
};
export type { Chance, Choose, Result, StateChange, Upstreams, UpstreamState };

/**
 * With at least this many upstreams, `#askAmong` asks the policy up to `MAX_PICKS` times before it makes a list of the
 * upstreams that fit.
 */
const MANY_MEMBERS = 32;
/** How often `#askAmong` asks the policy before it makes a list of the upstreams that fit. */
const MAX_PICKS = 3;

/** Several upstreams as one target, which can be changed while it is in use. */
export class Balancer implements Upstreams, Group {
  /** The sum of `active` of all upstreams. */
  active = 0;
  /** A number that changes when upstreams are added or removed, their weights are set, or active checks change a state. */
  version = 0;
  /** The highest weight that is set for one of the upstreams. */
  heaviest = 1;
  /** Keeps clients at their upstream, if the policy asks for it. */
  readonly keeper: ClientKeeper | undefined;
  readonly #members: BalancedMember[] = [];
  readonly #byTarget: Map<TargetAddress, BalancedMember> = new Map();
  readonly #byName: Map<string, BalancedMember> = new Map();
  readonly #policy: Policy;
  /** The same object as `keeper`. Its type has the members that only this class uses. */
  readonly #cookie: StickyCookie | undefined;
  readonly #onStateChange: BalanceOptions["onStateChange"];
  /** The maximum number of requests that wait for each upstream. */
  readonly #maxQueue: number;
  readonly #chance: Chance;
  readonly #outliers: OutlierDetector | undefined;
  readonly #budget: RetryBudget;
  readonly #checks: HealthChecks | undefined;
  /** The host names of which each address is a separate upstream, if the option `resolve` is set. */
  readonly #names: HostNames | undefined;
  readonly #queue: PlaceQueue;
  readonly #limits: MemberLimits;
  /** The upstreams that get requests, including busy ones; undefined if they must be determined again. */
  #able: BalancedMember[] | undefined;
  /**
   * The health records of the upstreams that may be ejected. Upstreams that active checks find down, or that are being
   * removed, are left out.
   */
  #healths: readonly Health[] = [];
  /** The time until which `#able` is valid, unless a change clears `#able` before that. */
  #ableUntil = 0;
  #isUniform = true;
  /** Whether `#changeTogether` is making several changes, after which it calls `#changed` once. */
  #isChanging = false;
  /** Whether the constructor has added the first upstreams. Later ones start slowly. */
  #isInUse = false;

  /**
   * Use the function `balance` instead of this constructor.
   * @param chance the clock and the random numbers, which tests set
   */
  constructor(
    targets: readonly (TargetAddress | BalancedTarget)[],
    options: BalanceOptions,
    chance: Chance = realChance,
  ) {
    checkBalanceOptions(options);
    const { policy = "least_conn", outliers = {}, resolve = false } = options;
    this.#onStateChange = options.onStateChange;
    this.#maxQueue = options.maxQueue ?? 100;
    this.#chance = chance;
    const { maxRequests = Infinity, slowStart = 10_000, queueTimeout = 10_000 } = options;
    const { minRate = 240, minRateGrace = 5_000 } = options;
    this.#limits = { maxRequests, slowStart, now: chance.now };
    this.#queue = new PlaceQueue((request, tried) => this.#takePlace(request, tried), {
      maxRequests,
      queueTimeout,
      minRate,
      minRateGrace,
    });
    const own = typeof policy === "object" ? policy : POLICIES[policy](chance);
    this.#policy = own;
    if (own.keepsClient !== undefined) {
      const isFor = (request: PickRequest): boolean => own.keepsClient?.(request) === true;
      this.keeper = this.#cookie = new StickyCookie(options.cookie ?? {}, isFor);
    }
    this.#budget = new RetryBudget(chance, options.retryBudget);
    const change = (health: Health, reason: string): void => {
      this.#able = undefined;
      this.#reportChange(reason, (member) => member.health === health);
    };
    if (outliers !== false) {
      this.#outliers = new OutlierDetector({ ...outlierDefaults, ...outliers }, chance, change);
    }
    if (options.check !== undefined) this.#checks = new HealthChecks(options.check);
    if (resolve !== false) {
      this.#names = new HostNames(resolve === true ? {} : resolve, (name, added, removed) => {
        this.#changeTogether(() => {
          for (const each of added) this.#put(each, name.weight, name.startsSlowly);
          for (const each of this.#present(removed)) void this.#drain(each);
        });
      });
    }
    this.#changeTogether(() => {
      for (const target of targets) this.add(target);
    });
    this.#isInUse = true;
    if (targets.length === 0) throw badOption("balance", "give it at least one upstream");
  }

  // ── the upstreams ──

  /** All upstreams, including those that take no requests at present. */
  get members(): readonly Member[] {
    return this.#members;
  }

  /** The number of requests that wait for a place. */
  get waiting(): number {
    return this.#queue.size;
  }

  /** One of the targets. A request that waits because no upstream can take it is prepared for this one. */
  get anyTarget(): TargetAddress | undefined {
    return (this.#members[0] ?? this.#names?.all[0])?.target;
  }

  /** Whether all upstreams that get requests have the same weight at present. */
  get isUniform(): boolean {
    this.#refresh();
    return this.#isUniform;
  }

  /** Returns the state of each upstream. */
  states(): UpstreamState[] {
    this.#refresh();
    return this.#members.map((member) => ({
      name: member.name,
      weight: member.weight,
      active: member.active,
      waiting: member.waiting,
      requests: member.requests,
      failures: member.failures,
      state: stateOf(member),
      reason: member.lastChange?.reason,
      since: member.lastChange?.since,
    }));
  }

  /**
   * Adds an upstream.
   * @throws TypeError for a bad target or weight, and for an upstream that was added before, that has another base path or
   * query than the others, or that `check` cannot check
   */
  add(added: TargetAddress | BalancedTarget): void {
    const { target, weight = 1 } = isBalanced(added) ? added : { target: added };
    checkWeight(weight);
    if (this.#checks !== undefined && parseTarget(target).app !== undefined) {
      throw badOption("check", "an app in this process cannot be checked; leave it out");
    }
    const name = nameOf(target);
    if (this.#findName(target) ?? this.#byName.get(name)) {
      throw badOption("balance", `${name} is there twice; set its weight instead`);
    }
    checkFits(target, this.anyTarget ?? target);
    if (this.#names !== undefined && hasHostName(target)) {
      this.#names.add(new HostName(target, weight, this.#isInUse));
    } else this.#put(target, weight, this.#isInUse);
  }

  /**
   * Removes an upstream. The upstream gets no new requests, and the promise resolves when its last request is over. A host
   * name is removed with all of its upstreams. One of them, as `{ url, address }`, stays removed until its address has left the
   * DNS record and is found again.
   */
  async remove(target: TargetAddress): Promise<void> {
    const hostName = this.#findName(target);
    if (hostName === undefined) return this.#drain(this.#find(target));
    this.#names?.remove(hostName);
    const upstreams = this.#present(hostName.upstreams.values());
    await Promise.all(upstreams.map((each) => this.#drain(each)));
  }

  /** Sets the weight of an upstream; for a host name, the weight of each of its upstreams. */
  setWeight(target: TargetAddress, weight: number): void {
    checkWeight(weight);
    const hostName = this.#findName(target);
    if (hostName === undefined) this.#find(target).share = weight;
    else {
      hostName.weight = weight;
      for (const each of this.#present(hostName.upstreams.values())) each.share = weight;
    }
    this.#changed();
  }

  /**
   * @param startsSlowly whether the upstream gets its share gradually, because the others are in use and its caches and
   * connections are cold
   */
  #put(target: TargetAddress, weight: number, startsSlowly: boolean): void {
    // An address of a host name may be found again while its upstream is still being removed: then keep that upstream.
    let member = this.#byName.get(nameOf(target));
    if (member === undefined) {
      member = new BalancedMember(target, weight, this.#limits);
      this.#members.push(member);
      this.#byTarget.set(target, member);
      this.#byName.set(member.name, member);
      this.#cookie?.add(member);
    }
    member.share = weight;
    member.isDraining = false;
    if (startsSlowly) member.health.startSlowly(this.#chance.now());
    this.#checks?.add(member);
    this.#changed();
  }

  async #drain(member: BalancedMember): Promise<void> {
    member.isDraining = true;
    this.#checks?.remove(member);
    this.#changed();
    if (member.active > 0) await new Promise<void>((resolve) => member.onIdle.push(resolve));
    const index = this.#members.indexOf(member);
    if (!member.isDraining || index < 0) return;
    this.#members.splice(index, 1);
    this.#byTarget.delete(member.target);
    this.#byName.delete(member.name);
    this.#cookie?.delete(member);
    this.#changed();
  }

  // ── for the proxy ──

  /** Picks the upstream of a request. The proxy calls it. */
  readonly choose: Choose = choose;

  /**
   * Starts the active checks and the lookups of host names. The proxy calls it.
   * @throws TypeError for an upstream that the transport cannot reach, and for an option that does not work with the
   * transport
   */
  start(transport: Transport): void {
    for (const { target } of [...this.#members, ...(this.#names?.all ?? [])]) {
      assertReachable(parseTarget(target), transport);
    }
    if (this.#names !== undefined) {
      if (!hasResolve(transport)) {
        const fix = `the ${transport.name} client looks up names itself; leave it out`;
        throw badOption("resolve", fix);
      }
      this.#names.start(transport);
    }
    if (this.#checks === undefined) return;
    if (transport.capabilities.background === false) {
      const fix =
        "nothing runs between requests here; leave it out: failures of requests still eject upstreams";
      throw badOption("check", `${fix} (transport ${transport.name})`);
    }
    const remaining = this.#members.filter(({ isDraining }) => !isDraining);
    this.#checks.start(transport, remaining, (checked, reason) => {
      this.#changed();
      this.#reportChange(reason, (member) => member === checked);
    });
  }

  /** Stops the active checks and the lookups of host names. */
  close(): void {
    this.#checks?.close();
    this.#names?.close();
  }

  /** Picks an upstream for an attempt. The proxy calls it. */
  pick(
    request: PickRequest,
    tried: readonly TargetAddress[],
  ): TargetAddress | undefined | Promise<TargetAddress | undefined> {
    const pending = this.#names?.pending;
    if (pending !== undefined) return pending.then(() => this.pick(request, tried));
    if (tried.length === 0) this.#budget.deposit();
    // A place may have become free without a call of `report`, because an ejection is over.
    if (this.#queue.size > 0) this.#queue.pump();
    const chosen = this.#takePlace(request, tried);
    if (!(chosen instanceof Busy)) return chosen?.target;
    if (!this.#queue.hasRoom(this.#maxQueue * this.#refresh().length, request)) {
      return undefined;
    }
    return this.#queue.wait(request, tried, chosen);
  }

  /** Takes the result of an attempt. The proxy calls it. */
  report(result: Result): void {
    const { target, request, status, error, latency, isOver, isSent } = result;
    const member = this.#byTarget.get(target);
    if (member === undefined) return;
    // The first report of an attempt contains its outcome. The second report only says that the attempt is over, and
    // whether the response broke off.
    const isFirst = !isOver || status === undefined;
    // Requests that were sent before the ejection may be answered now. Their results do not show whether the upstream works
    // again.
    const isProbe = member.probe !== undefined && (request ?? member.probe) === member.probe;
    if (isFirst && isProbe) member.probe = undefined;
    if (isFirst && isSent !== false) member.requests++;
    if (isFirst && isAboutUpstream(result)) {
      const failure = status === undefined || status >= 500 ? nameFailure(result) : undefined;
      if (failure === undefined) this.#policy.observe?.(member, latency);
      else member.failures++;
      this.#outliers?.record(member.health, failure, this.#healths, isProbe);
    } else if (!isFirst && status < 500 && error !== undefined && isAboutUpstream(result)) {
      // A status of 500 or above was already counted as a failure when the headers arrived.
      member.failures++;
      this.#outliers?.record(member.health, nameFailure(result), this.#healths);
    }
    if (isOver) {
      member.active--;
      this.active--;
      this.#queue.free(request);
      if (member.active === 0 && member.onIdle.length > 0) {
        for (const resolve of member.onIdle.splice(0)) resolve();
      }
    }
    // An answered probe or a changed state may let an upstream take requests although the response is not over.
    if (isOver || isProbe || this.#able === undefined) this.#queue.pump();
  }

  /** Whether the retry budget allows one more attempt. The proxy calls it. */
  mayRetry(): boolean {
    return this.#budget.withdraw();
  }

  /** Returns the seconds after which a client that got 503 may try again. */
  retryAfter(): number {
    return 1;
  }

  /**
   * Takes a place for an attempt. Returns the upstream, a `Busy` if the attempt has to wait, or undefined if no upstream
   * can take it.
   */
  #takePlace(
    request: PickRequest,
    tried: readonly TargetAddress[],
  ): BalancedMember | Busy | undefined {
    const able = this.#refresh();
    let member: BalancedMember | undefined;
    if (tried.length > 0) member = this.#askAmong(able, request, tried);
    else if (able.length > 0) member = this.#ask(able, request);
    if (member === undefined) return undefined;
    if (member.isBusy) {
      if (member.isFull && this.#isTied(request, member) && this.#mayWaitFor(member)) {
        return new Busy(member);
      }
      member = this.#askAmong(able, request, tried, isFree);
      if (member === undefined) return ANY_BUSY;
    }
    if (member.health.isHalfOpen) {
      member.probe = request;
      member.probedAt = this.#chance.now();
    }
    member.active++;
    this.active++;
    this.#queue.take(request);
    return member;
  }

  /** Whether a request waits for `member` while `member` is full, although other upstreams may be free. */
  #isTied(request: PickRequest, member: BalancedMember): boolean {
    return this.#cookie?.names(member, request) === true || waits(this.#policy, request);
  }

  #mayWaitFor(member: BalancedMember): boolean {
    if (member.waiting >= this.#maxQueue) this.#queue.dropAborted();
    return member.waiting < this.#maxQueue;
  }

  /** Asks the policy for an untried upstream for which `fits` returns true; undefined if there is none. */
  #askAmong(
    able: readonly BalancedMember[],
    request: PickRequest,
    tried: readonly TargetAddress[],
    fits?: (member: BalancedMember) => boolean,
  ): BalancedMember | undefined {
    // If there are many upstreams, most of them fit. Asking the policy again then costs less than making a list of those
    // that fit.
    for (let picks = 0; picks < MAX_PICKS && able.length >= MANY_MEMBERS; picks++) {
      const member = this.#ask(able, request);
      if (!tried.includes(member.target) && (fits === undefined || fits(member))) return member;
    }
    let fitting = fits === undefined ? able : able.filter(fits);
    for (const target of tried) {
      const at = fitting.indexOf(this.#byTarget.get(target) as BalancedMember);
      if (at >= 0) fitting = fitting.toSpliced(at, 1);
    }
    return fitting.length === 0 ? undefined : this.#ask(fitting, request);
  }

  #ask(able: readonly BalancedMember[], request: PickRequest): BalancedMember {
    const kept = this.#cookie?.find(request, able);
    if (kept !== undefined) return kept;
    const member = this.#policy.pick(able, request, this) as BalancedMember | undefined;
    if (member !== undefined && this.#byTarget.get(member.target) === member) return member;
    throw badOption("policy", "its method pick must return one of the upstreams that it is given");
  }

  /** Returns the upstreams that get requests, including busy ones. */
  #refresh(): BalancedMember[] {
    const now = this.#chance.now();
    if (this.#able !== undefined && now < this.#ableUntil) return this.#able;
    return this.#findAble(now);
  }

  /** A separate method because of its closure; see `observe` in pipeline.ts. */
  #findAble(now: number): BalancedMember[] {
    const members = this.#members;
    this.#outliers?.sweep(this.#healths);
    let able = members.filter(isWorking);
    // If all upstreams are ejected or down, use the ejected ones, which may still work.
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

  #findName(target: TargetAddress): HostName | undefined {
    if (this.#names === undefined) return undefined;
    const name = nameOf(target);
    return this.#names.all.find((each) => each.name === name);
  }

  #find(target: TargetAddress): BalancedMember {
    const name = nameOf(target);
    const found = this.#byName.get(name);
    if (found === undefined) throw badOption("target", `there is no upstream ${name}`);
    return found;
  }

  /** Returns the upstreams of a host name, without those that the app has removed by their addresses. */
  #present(targets: Iterable<TargetAddress>): BalancedMember[] {
    return [...targets].flatMap((target) => this.#byName.get(nameOf(target)) ?? []);
  }

  /** Groups several changes, so that the queue is processed and hash tables are built only once. */
  #changeTogether(change: () => void): void {
    this.#isChanging = true;
    try {
      change();
    } finally {
      this.#isChanging = false;
      this.#changed();
    }
  }

  /** Notes that an upstream was ejected, went down or has returned, and calls `onStateChange`. */
  #reportChange(reason: string, matches: (member: BalancedMember) => boolean): void {
    const member = this.#members.find(matches);
    if (member === undefined || member.isDraining) return;
    const { name, outage: previous } = member;
    const state = outageOf(member);
    if (state === previous) return;
    member.outage = state;
    // The checks of the upstream succeed again, but its ejection is not over.
    const isStill = previous === "down" && state === "ejected";
    const why = isStill ? `${reason}, but requests failed before` : reason;
    member.lastChange = { reason: why, since: Date.now() };
    const onStateChange = this.#onStateChange;
    if (onStateChange === undefined) return;
    const change: StateChange = { name, state, previous, reason: why };
    // Call the callback after this change is complete, because the callback may change the upstreams itself.
    void Promise.resolve(change)
      .then(onStateChange)
      // Nothing else reports the exception, because the callback has no caller.
      // oxlint-disable-next-line no-console
      .catch((thrown: unknown) => console.error(thrown));
  }

  #changed(): void {
    if (this.#isChanging) return;
    this.version++;
    this.heaviest = this.#members.reduce((most, { share }) => Math.max(most, share), 0);
    this.#healths = this.#members.filter(mayWork).map(({ health }) => health);
    this.#able = undefined;
    this.#queue.pump(true);
  }
}

/**
 * Makes one target of several upstreams. Closing a proxy that uses the target stops the checks and lookups of the target.
 * The next request of another proxy starts them again.
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

function isBalanced(added: TargetAddress | BalancedTarget): added is BalancedTarget {
  if (typeof added !== "object" || added === null || isApp(added)) return false;
  if (!("target" in added)) {
    if ("weight" in added)
      throw badOption("balance", "`weight`: write it as { target: { url }, weight }");
    return false;
  }
  const wrong = Object.keys(added).find((name) => name !== "target" && name !== "weight");
  if (wrong === undefined) return true;
  throw badOption("balance", `\`${wrong}\` is unknown; use { target, weight }`);
}

/** Names a failure without the message of the error, because status pages show the reasons of changes. */
function nameFailure({ error, status }: Result): string {
  return `${error?.code ?? status ?? "no response"}`;
}

function checkWeight(weight: number): void {
  if (typeof weight === "number" && weight > 0 && Number.isFinite(weight)) return;
  throw badOption("weight", "use a number above 0");
}

function checkFits(added: TargetAddress, present: TargetAddress): void {
  const [one, other] = [parseTarget(added), parseTarget(present)];
  if (one.basePath === other.basePath && one.query === other.query) return;
  throw badOption("balance", "all upstreams need the same base path and query");
}

function hasResolve(
  transport: Transport,
): transport is Transport & Required<Pick<Transport, "resolve">> {
  return transport.resolve !== undefined;
}
