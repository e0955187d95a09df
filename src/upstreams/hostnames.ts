import { isIPAddress, isLocalName } from "../target/address.ts";
import { parseTarget, type TargetAddress, type TargetOptions } from "../target/target.ts";
import type { Transport } from "../transport/port.ts";
import { startBackgroundTimer } from "../transport/timers.ts";

/** Options for host names whose addresses are separate upstreams. */
export interface ResolveOptions {
  /**
   * Milliseconds between two lookups of a name. The transport may cache an answer for longer, as set by its option `dns`.
   * @default 10000
   */
  interval?: number;
}

/** Milliseconds after which a host name without any address is looked up again, unless `interval` is shorter. */
const FIRST_RETRY = 1_000;

/** A host name, and the upstreams that it stands for. */
export class HostName {
  readonly target: TargetAddress;
  /** The text that identifies the host name, such as `https://api.internal:8443`. */
  readonly name: string;
  /** The weight of each upstream. */
  weight: number;
  /** The upstreams of the name, by address. */
  readonly upstreams: Map<string, TargetOptions> = new Map();
  /** Whether a new upstream of the name gets its share of the requests gradually, because others are in use. */
  startsSlowly: boolean;
  timer: ReturnType<typeof setTimeout> | undefined;

  constructor(target: TargetAddress, weight: number, startsSlowly: boolean) {
    this.startsSlowly = startsSlowly;
    this.target = target;
    this.name = parseTarget(target).origin;
    this.weight = weight;
  }

  /** Returns the upstream at an address. Its requests have the host name in `Host` and in TLS. */
  at(address: string): TargetOptions {
    const { target } = this;
    const isBare = typeof target === "string" || target instanceof URL;
    const options = isBare ? { url: target } : (target as TargetOptions);
    return { ...options, url: String(options.url), address };
  }
}

/**
 * Whether a target has a host name that can stand for several upstreams. `localhost` cannot: its addresses all belong to
 * this machine, but different programs may listen on them.
 */
export function hasHostName(target: TargetAddress): boolean {
  const { app, socketPath, address, hostname } = parseTarget(target);
  const isFixed = app !== undefined || socketPath !== undefined || address !== undefined;
  return !isFixed && !/^[\d.]+$|:/.test(hostname) && !isLocalName(hostname);
}

/** A transport that looks up names. */
type ResolvingTransport = Pick<Required<Transport>, "resolve">;

/** Called with the upstreams that a name has gained and lost. */
type OnChange = (
  name: HostName,
  added: readonly TargetOptions[],
  removed: readonly TargetOptions[],
) => void;

/** Looks up host names at an interval. Its timers do not keep the process alive. */
export class HostNames {
  readonly all: HostName[] = [];
  readonly #interval: number;
  readonly #onChange: OnChange;
  /**
   * The transport that looks up the names; undefined before the first start and after `close`. Each start makes a new object,
   * so that a lookup can detect that `close` was called after it began.
   */
  #session: { readonly transport: ResolvingTransport } | undefined;
  #first: Promise<unknown> | undefined;

  constructor({ interval = 10_000 }: ResolveOptions, onChange: OnChange) {
    this.#interval = interval;
    this.#onChange = onChange;
  }

  /** Resolves when the names that were added before the start have been looked up; undefined from then on. */
  get pending(): Promise<unknown> | undefined {
    return this.#first;
  }

  /** Starts the lookups, unless they are running. */
  start(transport: ResolvingTransport): void {
    if (this.#session !== undefined) return;
    this.#session = { transport };
    const first = Promise.all(this.all.map((name) => this.#look(name)));
    this.#first = first;
    const end = (): void => {
      if (this.#first === first) this.#first = undefined;
    };
    void first.then(end);
  }

  add(name: HostName): void {
    this.all.push(name);
    if (this.#session !== undefined) void this.#look(name);
  }

  remove(name: HostName): void {
    clearTimeout(name.timer);
    this.all.splice(this.all.indexOf(name), 1);
  }

  /** Ends all lookups. */
  close(): void {
    this.#session = undefined;
    for (const { timer } of this.all) clearTimeout(timer);
  }

  async #look(name: HostName): Promise<void> {
    const session = this.#session;
    if (session === undefined) return;
    let addresses: readonly string[] = [];
    try {
      const found = await session.transport.resolve(parseTarget(name.target).hostname);
      // A transport of the app may resolve to any values.
      addresses = found.filter(isIPAddress);
    } catch {
      // A lookup that fails changes nothing, because the upstreams may still work. If they do not, their failures eject
      // them.
    }
    if (session !== this.#session || !this.all.includes(name)) return;
    if (addresses.length > 0) this.#take(name, addresses);
    name.startsSlowly = true;
    const hasNone = name.upstreams.size === 0;
    name.timer = startBackgroundTimer(
      () => void this.#look(name),
      hasNone ? Math.min(FIRST_RETRY, this.#interval) : this.#interval,
    );
  }

  #take(name: HostName, addresses: readonly string[]): void {
    const found = new Set(addresses);
    const added: TargetOptions[] = [];
    const removed: TargetOptions[] = [];
    for (const address of found) {
      if (name.upstreams.has(address)) continue;
      const upstream = name.at(address);
      name.upstreams.set(address, upstream);
      added.push(upstream);
    }
    for (const [address, upstream] of name.upstreams) {
      if (found.has(address)) continue;
      name.upstreams.delete(address);
      removed.push(upstream);
    }
    if (added.length + removed.length > 0) this.#onChange(name, added, removed);
  }
}
