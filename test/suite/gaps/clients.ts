/** The gaps of the hosts that do not use Fetchway's own HTTP client: the gaps of their server and of their client. */
import { type Client, losses } from "./losses.ts";
import type { Gap } from "./gaps.ts";
import { HOSTS, OTHER_CLIENTS } from "../../hosts/_hosts.ts";
import type { TestName } from "../_suite.ts";

/** The text that Bun prints in tests whose bodies it cannot decode. */
const PRINTED: Partial<Record<TestName, string>> = {
  "a 206 response of a gzip resource passes unchanged": "Decompression error: ZlibError\n",
  "a truncated gzip response body fails for the client": "Decompression error: ZlibError\n",
};

/** Gives each host with another HTTP client the gaps of the host with the same server and Fetchway's own client. */
export function inheritGaps(onServers: readonly Gap[]): Gap[] {
  return OTHER_CLIENTS.flatMap((host) =>
    onServers.flatMap((gap) => (gap.host === HOSTS[host].server ? [{ ...gap, host }] : [])),
  );
}

function toGap(host: Client, test: TestName, reason: string, often?: "sometimes"): Gap {
  const prints = host === "fetch-bun" ? PRINTED[test] : undefined;
  return { host, test, reason, ...(prints && { prints }), ...(often && { sometimes: true }) };
}

/** Returns the gaps of HTTP clients, except where the server on the same host already fails the test. */
export function toClientGaps(onServers: readonly Gap[]): Gap[] {
  const isServers = ({ host, test }: Gap): boolean =>
    onServers.some((gap) => gap.host === host && gap.test === test);
  return Object.values(losses)
    .flat()
    .flatMap(([reason, ...on]) =>
      on.flatMap(([clients, tests, often]) =>
        clients.flatMap((host) => tests.map((test) => toGap(host, test, reason, often))),
      ),
    )
    .filter((gap) => !isServers(gap));
}
