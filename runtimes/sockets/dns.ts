import type { Resolver as NameServers } from "node:dns";
import { ProxyError } from "../../src/error.ts";
import type { FoundAddresses, NameUser, ResolvedAddress } from "../../src/http1/connector.ts";
import { badOption } from "../../src/misuse.ts";
import type { FilledDnsOptions } from "../../src/options/pooloptions.ts";
import { RecentMap } from "../../src/recentmap.ts";
import { isLocalName } from "../../src/target/address.ts";
import { toSocketError } from "../../src/transport/socketerror.ts";
import { startBackgroundTimer } from "../../src/transport/timers.ts";

/** Node's built-in modules are looked up at run time, because a bundle for another runtime cannot import them. */
const { process } = globalThis as unknown as {
  process: { getBuiltinModule(name: "node:dns"): typeof import("node:dns") };
};

/** Milliseconds for which an address that has failed is tried last. */
const DOWN_TIME = 10_000;
/**
 * The cache keeps at least this number of names, and at most twice as many. Without a limit, clients that choose the target
 * could fill the cache with names.
 */
const MIN_KEPT_NAMES = 1000;
/** Milliseconds between two background lookups of a name whose addresses are not kept, because their TTL is 0. */
const MIN_INTERVAL = 1000;
/** After a failed lookup, the earlier answer counts as valid for at most this number of milliseconds (RFC 8767 §5). */
const FAILED_TTL = 30_000;
/**
 * The maximum number of milliseconds that a connection waits for a new answer, if there is an expired one (RFC 8767 §5). Most
 * name servers answer within this time, and the connection then gets the new address of a host that has moved.
 */
const MAX_WAIT = 200;
/**
 * Milliseconds since its expiry after which an answer no longer replaces a slow lookup: the address may belong to another host
 * by then. If the lookup fails, the answer is still used.
 */
const MAX_EXPIRED = 3_600_000;
const LOOPBACK_ADDRESSES: readonly ResolvedAddress[] = [
  { address: "127.0.0.1", family: 4 },
  { address: "::1", family: 6 },
];
/**
 * The maximum delay of a name's timer in milliseconds. The timer is not set again if no pool uses the name any more when it
 * fires. A longer timer would keep unused pools in memory longer.
 */
const MAX_DELAY = 60_000;

interface Answer {
  readonly addresses: readonly ResolvedAddress[];
  /** Milliseconds for which the addresses are valid. */
  readonly ttl: number;
}

interface CachedAnswer extends Answer {
  /** The time until which the addresses are valid, on the clock of `performance.now()`. */
  readonly validUntil: number;
  /** Whether the last lookup has failed, so that `addresses` come from an earlier lookup. */
  readonly hasFailed: boolean;
}

/** The answer of name servers for the addresses of one family. */
interface FamilyAnswer {
  readonly family: number;
  readonly records: readonly (ResolvedAddress & { ttl: number })[];
  readonly error: Error | null;
}

/** The cache entry of one name. */
interface Entry {
  /** Whether the addresses have a fixed order, as those of `localhost` do, instead of being rotated. */
  readonly isOrder: boolean;
  answer: CachedAnswer | undefined;
  /** The running lookup of the name; undefined if there is none. */
  lookup: Promise<CachedAnswer> | undefined;
  /** How often the addresses were rotated so far. It decides which address is first in the next result. */
  results: number;
  /** The addresses that have failed, each with the time until which it is tried last. */
  readonly down: Map<string, number>;
  /** The pools for which the name is looked up again in the background. */
  readonly users: Set<NameUser>;
  /** The timer of the next lookup in the background. */
  timer: ReturnType<typeof setTimeout> | undefined;
}

/**
 * Looks up host names, and caches the answers while they are valid. While a pool uses a name, the name is looked up again
 * whenever its answer has expired; meanwhile, new connections use the expired answer, so that no request waits. The first
 * connection after a pause also uses the expired answer, if the name server does not answer soon.
 */
export class Resolver {
  readonly #entries: RecentMap<string, Entry> = new RecentMap(MIN_KEPT_NAMES);
  readonly #ttl: number;
  /** Whether the addresses of a name are rotated; with `dns: false`, their order is the system's. */
  readonly #rotates: boolean;
  readonly #query: (hostname: string, previous: readonly ResolvedAddress[]) => Promise<Answer>;

  /**
   * @param options `false` to ask the system for each connection
   * @throws TypeError for a name server that is not an IP address
   */
  constructor(options: FilledDnsOptions | false) {
    const { ttl, servers = [] } = options || { ttl: 0 };
    const dns = process.getBuiltinModule("node:dns");
    this.#ttl = ttl;
    this.#rotates = options !== false;
    const nameServers = servers.length === 0 ? undefined : createNameServers(dns, servers);
    this.#query = (hostname, previous) => {
      if (isLocalName(hostname)) return askForLocal(dns, hostname, ttl);
      if (nameServers === undefined) return askSystem(dns, hostname, ttl);
      return askServers(nameServers, hostname, previous);
    };
  }

  /**
   * Returns the addresses of a name. Concurrent calls for the same name share one lookup.
   * @param mayBeExpired whether the result may be an expired answer if a pool uses the name, or if a new answer takes long
   * @throws ProxyError `dns_error` or `dns_timeout`; with another code if this process lacks a descriptor or a permission
   */
  async resolve(hostname: string, mayBeExpired = false): Promise<FoundAddresses> {
    const entry = this.#entryFor(hostname);
    const { answer, users } = entry;
    const left = answer === undefined ? -Infinity : answer.validUntil - performance.now();
    const isKept = mayBeExpired && answer !== undefined && answer.ttl > 0;
    if (answer !== undefined && (left > 0 || (isKept && users.size > 0)))
      return this.#sort(answer, entry);
    const lookup = this.#lookUp(hostname, entry);
    const isUsable = isKept && left > -MAX_EXPIRED;
    return this.#sort(await (isUsable ? waitShortly(lookup, answer) : lookup), entry);
  }

  /**
   * While a pool uses a name, looks the name up again whenever its answer has expired. Does nothing for a name that is not in
   * the cache.
   */
  watch(hostname: string, user: NameUser): void {
    const entry = this.#entries.get(hostname);
    if (entry === undefined) return;
    entry.users.add(user);
    if (entry.timer === undefined) this.#arm(hostname, entry);
  }

  /** Marks an address of a name as failed, so that it is tried last for a while. */
  markFailed(hostname: string, address: string): void {
    this.#entries.get(hostname)?.down.set(address, performance.now() + DOWN_TIME);
  }

  #entryFor(hostname: string): Entry {
    let entry = this.#entries.get(hostname);
    if (entry === undefined) {
      entry = {
        isOrder: isLocalName(hostname),
        answer: undefined,
        lookup: undefined,
        results: 0,
        down: new Map(),
        users: new Set(),
        timer: undefined,
      };
      this.#entries.set(hostname, entry);
    }
    return entry;
  }

  /** Looks up a name. Concurrent calls for the same name share one lookup. */
  #lookUp(hostname: string, entry: Entry): Promise<CachedAnswer> {
    return (entry.lookup ??= this.#ask(hostname, entry).finally(() => (entry.lookup = undefined)));
  }

  async #ask(hostname: string, entry: Entry): Promise<CachedAnswer> {
    let found = entry.answer as Answer | undefined;
    let hasFailed = false;
    try {
      found = await this.#query(hostname, found?.addresses ?? []);
    } catch (cause) {
      // If the lookup fails, keep the expired answer, unless name servers say that the name has no address any more.
      if (isGone(cause as Error)) found = entry.answer = undefined;
      if (found === undefined) throw toDnsError(cause as Error);
      hasFailed = true;
    }
    const valid = hasFailed ? Math.min(found.ttl, FAILED_TTL) : found.ttl;
    entry.answer = { ...found, validUntil: performance.now() + valid, hasFailed };
    const addresses = new Set(found.addresses.map(({ address }) => address));
    for (const address of entry.down.keys())
      if (!addresses.has(address)) entry.down.delete(address);
    return entry.answer;
  }

  /** Sets the timer of the next lookup in the background. */
  #arm(hostname: string, entry: Entry): void {
    const { answer } = entry;
    const left = answer === undefined ? this.#ttl : answer.validUntil - performance.now();
    const delay = left > 0 ? left : MIN_INTERVAL;
    const isDue = delay <= MAX_DELAY;
    entry.timer = startBackgroundTimer(
      () => void this.#lookUpAgain(hostname, entry, isDue),
      isDue ? delay : MAX_DELAY,
    );
  }

  async #lookUpAgain(hostname: string, entry: Entry, isDue: boolean): Promise<void> {
    for (const user of entry.users) if (!user.checkUsed()) entry.users.delete(user);
    if (entry.users.size === 0) {
      entry.timer = undefined;
      return;
    }
    // Put the name back if lookups of more than a thousand other names have evicted it.
    if (this.#entries.get(hostname) === undefined) this.#entries.set(hostname, entry);
    const answer = isDue ? await this.#lookUp(hostname, entry).catch(() => undefined) : undefined;
    // Report only the result of a successful lookup. After a failed one, the pools keep their connections: the host may work
    // although its name server does not.
    if (answer?.hasFailed === false) {
      const found = this.#sort(answer, entry);
      for (const user of entry.users) user.onAddresses(found);
    }
    this.#arm(hostname, entry);
  }

  /** Separates the addresses that have failed lately from the others, and rotates the others, unless their order is fixed. */
  #sort({ addresses }: CachedAnswer, entry: Entry): FoundAddresses {
    const now = performance.now();
    const good: ResolvedAddress[] = [];
    const down: ResolvedAddress[] = [];
    for (const each of addresses) {
      const isDown = (entry.down.get(each.address) ?? 0) > now;
      (isDown ? down : good).push(each);
    }
    const { isOrder } = entry;
    const rotates = this.#rotates && !isOrder && good.length > 1;
    const first = rotates ? entry.results++ % good.length : 0;
    return { good: [...good.slice(first), ...good.slice(0, first)], down, isOrder };
  }
}

/** Returns the result of a lookup, or the expired answer if the lookup takes too long. */
async function waitShortly(
  lookup: Promise<CachedAnswer>,
  expired: CachedAnswer,
): Promise<CachedAnswer> {
  let timer: ReturnType<typeof setTimeout> | undefined;
  const late = new Promise<CachedAnswer>((resolve) => {
    timer = setTimeout(() => resolve(expired), MAX_WAIT);
  });
  try {
    return await Promise.race([lookup, late]);
  } finally {
    clearTimeout(timer);
  }
}

function createNameServers(
  dns: typeof import("node:dns"),
  servers: readonly string[],
): NameServers {
  // With this timeout, two tries end within the default `connectTimeout`.
  const nameServers = new dns.Resolver({ timeout: 1500, tries: 2 });
  try {
    nameServers.setServers(servers);
  } catch (error) {
    // Pass on Deno's refusal of the permission to ask name servers other than the system's.
    if ((error as Error).name === "NotCapable") throw error;
    throw badOption("dns", 'servers: use addresses such as "10.0.0.2" or "10.0.0.2:53"');
  }
  return nameServers;
}

function askSystem(dns: typeof import("node:dns"), hostname: string, ttl: number): Promise<Answer> {
  return new Promise((resolve, reject) => {
    dns.lookup(hostname, { all: true }, (error, addresses) => {
      if (error) reject(error);
      else resolve({ addresses, ttl });
    });
  });
}

/**
 * Looks up a name of this machine, such as `localhost`, which no name server knows (RFC 6761 §6.3). The system may not know the
 * name either, as in a container without `/etc/hosts`. Or it may know only one of the two loopback addresses while the server
 * listens on the other. So add the missing ones.
 */
async function askForLocal(
  dns: typeof import("node:dns"),
  hostname: string,
  ttl: number,
): Promise<Answer> {
  const { addresses } = await askSystem(dns, hostname, ttl).catch(() => ({ addresses: [] }));
  const found = new Set(addresses.map(({ address }) => address));
  const missing = LOOPBACK_ADDRESSES.filter(({ address }) => !found.has(address));
  // The hosts file may give the name another address, such as that of a container. Then add none.
  const hasOther = found.size + missing.length > LOOPBACK_ADDRESSES.length;
  return { addresses: hasOther ? addresses : [...addresses, ...missing], ttl };
}

/**
 * Asks for the addresses of both families in parallel, and waits for both answers. One of them may be an error.
 * @param previous the addresses that were found last; if the query for a family fails, its previous addresses are kept
 */
async function askServers(
  servers: NameServers,
  hostname: string,
  previous: readonly ResolvedAddress[],
): Promise<Answer> {
  const ask = (method: "resolve4" | "resolve6", family: number): Promise<FamilyAnswer> =>
    new Promise((resolve) => {
      servers[method](hostname, { ttl: true }, (error, records) => {
        const found = error ? [] : records.map(({ address, ttl }) => ({ address, family, ttl }));
        resolve({ family, records: found, error });
      });
    });
  const answers = await Promise.all([ask("resolve4", 4), ask("resolve6", 6)]);
  const records = answers.flatMap((answer) => answer.records);
  const failed = answers.filter(({ error }) => error !== null && !isGone(error));
  if (records.length === 0) throw failed[0]?.error ?? notFound();
  const kept = previous.filter((address) => failed.some(({ family }) => family === address.family));
  return {
    addresses: [...records, ...kept],
    ttl: Math.min(...records.map(({ ttl }) => ttl)) * 1000,
  };
}

/** Whether an error says that a name has no address, rather than that the lookup has failed. */
function isGone({ code }: NodeJS.ErrnoException): boolean {
  return code === "ENOTFOUND" || code === "ENODATA";
}

function notFound(): Error {
  return Object.assign(new Error("the name has no address"), { code: "ENOTFOUND" });
}

/** The codes of lookup errors for which this process is to blame, not the name: no free descriptor, or no permission. */
const LOCAL: ReadonlySet<string> = new Set(["EMFILE", "ENFILE", "EPERM", "ERR_ACCESS_DENIED"]);

/**
 * Converts an error of a lookup to a `ProxyError`. Otherwise `ECONNREFUSED` from a name server would count as a refusal by the
 * upstream.
 */
function toDnsError(cause: NodeJS.ErrnoException): ProxyError {
  if (LOCAL.has(cause.code ?? "")) return toSocketError(cause, false, false);
  return new ProxyError(cause.code === "ETIMEOUT" ? "dns_timeout" : "dns_error", { cause });
}
