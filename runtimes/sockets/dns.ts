import type { Resolver as NameServers } from "node:dns";
import { ProxyError } from "../../src/error.ts";
import type { ResolvedAddress, FoundAddresses } from "../../src/http1/connector.ts";
import { badOption } from "../../src/misuse.ts";
import type { FilledDnsOptions } from "../../src/options/pooloptions.ts";
import { RecentMap } from "../../src/recentmap.ts";

/** Node's built-in modules are looked up at run time, because a bundle for another runtime cannot import them. */
const { process } = globalThis as unknown as {
  process: { getBuiltinModule(name: "node:dns"): typeof import("node:dns") };
};

/** Milliseconds for which an address that has failed is tried last. */
const DOWN_TIME = 10_000;
/** The number of names that are kept at least, and half of the most: clients that choose the target choose names as well. */
const KEPT_NAMES = 1000;

interface Answer {
  readonly addresses: readonly ResolvedAddress[];
  /** Milliseconds for which the addresses are valid. */
  readonly ttl: number;
}

interface CachedAnswer extends Answer {
  /** The time until which the addresses are valid, on the clock of `performance.now()`. */
  validUntil: number;
}

/** The cache entry of one name. */
interface Entry {
  answer: CachedAnswer | undefined;
  /** The lookup that is running. */
  lookup: Promise<CachedAnswer> | undefined;
  /** The number of results so far, by which the addresses are rotated. */
  results: number;
  /** The time until which each address that has failed is tried last. */
  readonly down: Map<string, number>;
}

/** Looks up host names, and caches the answers while they are valid. */
export class Resolver {
  readonly #entries: RecentMap<string, Entry> = new RecentMap(KEPT_NAMES);
  readonly #query: (hostname: string) => Promise<Answer>;

  /** @throws TypeError for a name server that is not an IP address */
  constructor({ ttl, servers = [] }: FilledDnsOptions) {
    const dns = process.getBuiltinModule("node:dns");
    if (servers.length === 0) {
      this.#query = (hostname) => askSystem(dns, hostname, ttl);
      return;
    }
    // Two tries end within the default `connectTimeout`.
    const nameServers = new dns.Resolver({ timeout: 1500, tries: 2 });
    try {
      nameServers.setServers(servers);
    } catch {
      throw badOption("dns", 'servers: use addresses such as "10.0.0.2" or "10.0.0.2:53"');
    }
    this.#query = (hostname) => askServers(nameServers, hostname);
  }

  /**
   * Returns the addresses of a name. Concurrent calls for the same name share one lookup.
   * @throws ProxyError `dns_error` or `dns_timeout`
   */
  async resolve(hostname: string): Promise<FoundAddresses> {
    const entry = this.#entryFor(hostname);
    const now = performance.now();
    const isValid = entry.answer !== undefined && entry.answer.validUntil > now;
    const { addresses } = isValid
      ? (entry.answer as CachedAnswer)
      : await (entry.lookup ??= this.#lookUp(hostname, entry));
    const good: ResolvedAddress[] = [];
    const down: ResolvedAddress[] = [];
    for (const each of addresses) {
      const isDown = (entry.down.get(each.address) ?? 0) > now;
      (isDown ? down : good).push(each);
    }
    const first = good.length > 1 ? entry.results++ % good.length : 0;
    return { good: [...good.slice(first), ...good.slice(0, first)], down };
  }

  /** Marks an address of a name as failed: for a while, it is tried last. */
  markFailed(hostname: string, address: string): void {
    this.#entries.get(hostname)?.down.set(address, performance.now() + DOWN_TIME);
  }

  #entryFor(hostname: string): Entry {
    let entry = this.#entries.get(hostname);
    if (entry === undefined) {
      entry = { answer: undefined, lookup: undefined, results: 0, down: new Map() };
      this.#entries.set(hostname, entry);
    }
    return entry;
  }

  async #lookUp(hostname: string, entry: Entry): Promise<CachedAnswer> {
    let found: Answer;
    try {
      found = await this.#query(hostname);
    } catch (cause) {
      entry.lookup = undefined;
      const { code = "" } = cause as NodeJS.ErrnoException;
      // If the lookup fails, keep the expired answer, unless name servers say that the name has no address any more.
      const isGone = code === "ENOTFOUND" || code === "ENODATA";
      if (entry.answer === undefined || isGone) throw toDnsError(code, cause);
      found = entry.answer;
    }
    entry.lookup = undefined;
    entry.answer = { ...found, validUntil: performance.now() + found.ttl };
    const addresses = new Set(found.addresses.map(({ address }) => address));
    for (const address of entry.down.keys())
      if (!addresses.has(address)) entry.down.delete(address);
    return entry.answer;
  }
}

function askSystem(dns: typeof import("node:dns"), hostname: string, ttl: number): Promise<Answer> {
  return new Promise((resolve, reject) => {
    dns.lookup(hostname, { all: true }, (error, addresses) => {
      if (error) reject(error);
      else resolve({ addresses, ttl });
    });
  });
}

/** Asks for the addresses of both families at once; the answer for one family is enough. */
async function askServers(servers: NameServers, hostname: string): Promise<Answer> {
  const ask = (
    method: "resolve4" | "resolve6",
    family: number,
  ): Promise<(ResolvedAddress & { ttl: number })[]> =>
    new Promise((resolve, reject) => {
      servers[method](hostname, { ttl: true }, (error, records) => {
        if (error) reject(error);
        else resolve(records.map(({ address, ttl }) => ({ address, family, ttl })));
      });
    });
  const answers = await Promise.allSettled([ask("resolve4", 4), ask("resolve6", 6)]);
  const records = answers.flatMap((answer) => (answer.status === "fulfilled" ? answer.value : []));
  if (records.length === 0) {
    const [first] = answers;
    throw first.status === "rejected" ? first.reason : notFound();
  }
  return { addresses: records, ttl: Math.min(...records.map(({ ttl }) => ttl)) * 1000 };
}

function notFound(): ProxyError {
  return toDnsError("ENOTFOUND", undefined);
}

/** Converts an error of a lookup. Otherwise `ECONNREFUSED` from a name server would count as that of the upstream. */
function toDnsError(code: string, cause: unknown): ProxyError {
  if (cause instanceof ProxyError) return cause;
  return new ProxyError(code === "ETIMEOUT" ? "dns_timeout" : "dns_error", { cause });
}
