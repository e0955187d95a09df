/** The gaps of hosts with another client than the proxy's own: those of their servers, and what the client loses. */
import { type Loss, losses, lostSometimes, PRINTED } from "./_gaps.fetch.ts";
import type { Gap } from "./_gaps.ts";
import type { ClientHost, HostName } from "./_host.ts";

/** The server under each. */
export const serverOf: Readonly<Record<ClientHost, HostName>> = {
  undici: "node",
  "fetch-node": "node",
  "fetch-bun": "bun",
  "fetch-deno": "deno",
};

/** @param onServers the gaps of the servers */
export function clientGaps(onServers: readonly Gap[]): Gap[] {
  const inherited = Object.entries(serverOf).flatMap(([host, server]) =>
    onServers
      .filter((gap) => gap.host === server)
      .map((gap): Gap => ({ ...gap, host: host as ClientHost })),
  );
  const own = [
    ...toGaps(losses),
    ...toGaps(lostSometimes).map((gap): Gap => ({ ...gap, sometimes: true })),
  ];
  const isFirst = ({ host, test }: Gap, at: number, all: readonly Gap[]): boolean =>
    all.findIndex((gap) => gap.host === host && gap.test === test) === at;
  return [...inherited, ...own].filter(isFirst);
}

function toGaps(from: readonly Loss[]): Gap[] {
  return from.flatMap(([reason, hosts, tests]) =>
    hosts.flatMap((host) =>
      tests.map((test): Gap => {
        const prints = host === "fetch-bun" ? PRINTED[test] : undefined;
        return { host, test, reason, ...(prints && { prints }) };
      }),
    ),
  );
}
