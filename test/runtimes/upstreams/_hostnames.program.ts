/**
 * A host name with one upstream for each of its addresses, which change, on the runtime that runs this program. The program
 * prints one line of JSON.
 */
import { createProxy } from "#fetchway";
import { balance } from "../../../src/upstreams/balance.ts";
import { NameServer } from "../../helpers/dns.ts";
import { startUpstreams } from "../../helpers/upstreams.ts";
import { until } from "../../helpers/wait.ts";

export interface HostnamesOutcome {
  /** The addresses that answered in each phase: the name has one address, then two, then one, then lookups fail. */
  readonly answered: readonly string[][];
  /** The `Host` fields that the upstreams got. */
  readonly hosts: readonly string[];
  /** The authority of the target. */
  readonly host: string;
  /** The names and states of the upstreams in each phase. */
  readonly states: readonly string[][];
  /** The text of the response to a request that was running when its address was removed. */
  readonly held: string;
  /** The status of a request for a name that has no address. */
  readonly unknown: number;
  readonly retryAfter: string | null;
}

const names = await new NameServer().listen();
const upstreams = await startUpstreams(["127.0.0.1", "127.0.0.2"]);
const port = new URL(upstreams.urls[0] as string).port;
const pool = { dns: { servers: [names.address] } };
const setAddresses = (...addresses: string[]): void => {
  names.zones["app.test"] = { addresses, ttl: 0 };
};
setAddresses("127.0.0.1");
const target = balance([`http://app.test:${port}`], {
  policy: "round_robin",
  resolve: { interval: 20 },
});
const proxy = createProxy({ target, pool });
const ask = (path: string): Promise<Response> =>
  proxy.fetch(new Request(`http://proxy.test${path}`));

const answered: string[][] = [];
const states: string[][] = [];
async function look(): Promise<void> {
  const found = new Set<string>();
  for (let n = 0; n < 6; n++) {
    const index = Number(await (await ask(`/${n}`)).text());
    found.add(new URL(upstreams.urls[index] as string).hostname);
  }
  answered.push([...found].toSorted());
  states.push(target.states().map(({ name, state }) => `${name} ${state}`));
}
await look();
setAddresses("127.0.0.1", "127.0.0.2");
await until(() => target.states().length === 2, "the second address");
await look();
// The upstream at whichever address has its turn holds this request back.
const holding = ask("/hold");
await until(() => upstreams.held > 0, "a request");
const heldBy = target
  .states()
  .find(({ active }) => active > 0)
  ?.name.includes("127.0.0.1");
setAddresses(heldBy ? "127.0.0.2" : "127.0.0.1");
await until(() => target.states().some(({ state }) => state === "draining"), "the change");
await look();
upstreams.release();
const held = await (await holding).text();
await until(() => target.states().length === 1, "the removal");
// A name server that fails changes nothing.
names.broken = true;
const asked = names.asked.length;
await until(() => names.asked.length > asked + 2, "two lookups that fail");
await look();

const unknown = createProxy({
  target: balance([`http://unknown.test:${port}`], { resolve: true }),
  pool,
});
const response = await unknown.fetch(new Request("http://proxy.test/"));
const outcome: HostnamesOutcome = {
  answered,
  hosts: [...new Set(upstreams.requests.map(({ headers }) => headers.host ?? ""))],
  host: `app.test:${port}`,
  states,
  held,
  unknown: response.status,
  retryAfter: response.headers.get("retry-after"),
};
console.log(JSON.stringify(outcome));
process.exit(0);
