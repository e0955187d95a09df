import type { Resolver as NameServers } from "node:dns";
import { badOption } from "../../src/options/misuse.ts";
import { ProxyError } from "../../src/error.ts";
import type { Address, Answer } from "../../src/http1/spread.ts";
import type { FilledDnsOptions } from "../../src/options/pooloptions.ts";

/** Looked up at run time: a bundle for another runtime contains no module of Node's. */
const { process } = globalThis as unknown as {
  process: { getBuiltinModule(name: "node:dns"): typeof import("node:dns") };
};

/** Milliseconds for which an address that has failed is tried last. */
const DOWN_TIME = 10_000;
/** The maximum number of cached names: clients may decide how many targets there are. */
const NAMES = 1000;

interface Found {
  readonly addresses: readonly Address[];
  /** Milliseconds for which the addresses are valid. */
  readonly ttl: number;
}

interface Known extends Found {
  /** The time until which the addresses are valid, on the clock of `performance.now()`. */
  expiry: number;
}

/** The cache entry of one name. */
interface Name {
  known: Known | undefined;
  /** The lookup that is running. */
  asked: Promise<Known> | undefined;
  /** The number of answers so far, which rotates the addresses. */
  turn: number;
  /** The time until which each address that has failed is tried last. */
  readonly down: Map<string, number>;
}

/** Looks names up, and caches the answers while they are valid. */
export class Resolver {
  readonly #names: Map<string, Name> = new Map();
  readonly #ask: (hostname: string) => Promise<Found>;

  /** @throws TypeError for a name server that is not an IP address */
  constructor({ ttl, servers = [] }: FilledDnsOptions) {
    const dns = process.getBuiltinModule("node:dns");
    if (servers.length === 0) {
      this.#ask = (hostname) => askSystem(dns, hostname, ttl);
      return;
    }
    // Two tries end within the default `connectTimeout`.
    const nameServers = new dns.Resolver({ timeout: 1500, tries: 2 });
    try {
      nameServers.setServers(servers);
    } catch {
      throw badOption("dns", 'servers: use addresses such as "10.0.0.2" or "10.0.0.2:53"');
    }
    this.#ask = (hostname) => askServers(nameServers, hostname);
  }

  /**
   * Returns the addresses of a name. Concurrent calls for the same name share one lookup.
   * @throws ProxyError `dns_error` or `dns_timeout`
   */
  async resolve(hostname: string): Promise<Answer> {
    const name = this.#name(hostname);
    const now = performance.now();
    const fresh = name.known !== undefined && name.known.expiry > now;
    const { addresses } = fresh
      ? (name.known as Known)
      : await (name.asked ??= this.#find(hostname, name));
    const good: Address[] = [];
    const down: Address[] = [];
    for (const each of addresses) {
      const isDown = (name.down.get(each.address) ?? 0) > now;
      (isDown ? down : good).push(each);
    }
    const first = good.length > 1 ? name.turn++ % good.length : 0;
    return { good: [...good.slice(first), ...good.slice(0, first)], down };
  }

  /** Marks an address of a name as failed: for a while, it is tried last. */
  failed(hostname: string, address: string): void {
    this.#names.get(hostname)?.down.set(address, performance.now() + DOWN_TIME);
  }

  #name(hostname: string): Name {
    let name = this.#names.get(hostname);
    if (name === undefined) {
      if (this.#names.size >= NAMES) this.#names.clear();
      name = { known: undefined, asked: undefined, turn: 0, down: new Map() };
      this.#names.set(hostname, name);
    }
    return name;
  }

  async #find(hostname: string, name: Name): Promise<Known> {
    let found: Found;
    try {
      found = await this.#ask(hostname);
    } catch (cause) {
      name.asked = undefined;
      const { code = "" } = cause as NodeJS.ErrnoException;
      // If the lookup fails, keep the expired answer, unless name servers say that the name has no address any more.
      const gone = code === "ENOTFOUND" || code === "ENODATA";
      if (name.known === undefined || gone) throw toDnsError(code, cause);
      found = name.known;
    }
    name.asked = undefined;
    name.known = { ...found, expiry: performance.now() + found.ttl };
    const addresses = new Set(found.addresses.map(({ address }) => address));
    for (const address of name.down.keys()) if (!addresses.has(address)) name.down.delete(address);
    return name.known;
  }
}

function askSystem(dns: typeof import("node:dns"), hostname: string, ttl: number): Promise<Found> {
  return new Promise((resolve, reject) => {
    dns.lookup(hostname, { all: true }, (error, addresses) => {
      if (error) reject(error);
      else resolve({ addresses, ttl });
    });
  });
}

/** Asks for the addresses of both families at once; the answer for one family is enough. */
async function askServers(servers: NameServers, hostname: string): Promise<Found> {
  const ask = (
    method: "resolve4" | "resolve6",
    family: number,
  ): Promise<(Address & { ttl: number })[]> =>
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

/** Converts an error of a lookup here, because `ECONNREFUSED` of a name server would later look like the upstream's. */
function toDnsError(code: string, cause: unknown): ProxyError {
  if (cause instanceof ProxyError) return cause;
  return new ProxyError(code === "ETIMEOUT" ? "dns_timeout" : "dns_error", { cause });
}
