/** The gaps of the hosts that do not use Fetchway's own HTTP client: the gaps of their server and of their client. */
import { type Loss, losses } from "./fetch.ts";
import type { Gap } from "./gaps.ts";
import { withoutTunnel } from "./upgrades.ts";
import { HOSTS, OTHER_CLIENTS } from "../../hosts/_hosts.ts";
import type { TestName } from "../_suite.ts";

/** Gaps whose tests fail only on a loaded machine. */
const lostSometimes: readonly Loss[] = [
  [
    "a large part of a large upload is buffered in memory",
    ["fetch-node"],
    ["192 MiB of upload with Content-Length arrive unchanged, and memory stays flat"],
  ],
  [
    "large bodies take long",
    ["fetch-deno"],
    [
      "192 MiB of chunked upload arrive unchanged, and memory stays flat",
      "192 MiB of response with Content-Length arrive unchanged, and memory stays flat",
    ],
  ],
];

/** The text that Bun prints in tests whose bodies it cannot decode. */
const PRINTED: Partial<Record<TestName, string>> = {
  "a 206 response of a gzip resource passes unchanged": "Decompression error: ZlibError\n",
  "a truncated gzip response body fails for the client": "Decompression error: ZlibError\n",
};

/**
 * Returns the gaps of the hosts that do not use Fetchway's own HTTP client.
 * @param onServers the gaps of all servers, of which each host gets those of the server that it runs on
 */
export function clientGaps(onServers: readonly Gap[]): Gap[] {
  const inherited: Gap[] = [];
  for (const host of OTHER_CLIENTS) {
    for (const gap of onServers) {
      if (gap.host === HOSTS[host].server) inherited.push({ ...gap, host });
    }
  }
  const own = [...toGaps(losses), ...toGaps(lostSometimes, true), ...withoutTunnel];
  const isFirst = ({ host, test }: Gap, at: number, all: readonly Gap[]): boolean =>
    all.findIndex((gap) => gap.host === host && gap.test === test) === at;
  return [...inherited, ...own].filter(isFirst);
}

function toGaps(from: readonly Loss[], sometimes: boolean = false): Gap[] {
  return from.flatMap(([reason, hosts, tests]) =>
    hosts.flatMap((host) =>
      tests.map((test): Gap => {
        const prints = host === "fetch-bun" ? PRINTED[test] : undefined;
        return { host, test, reason, ...(prints && { prints }), ...(sometimes && { sometimes }) };
      }),
    ),
  );
}
