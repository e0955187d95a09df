/** The table of features by runtime in README, which `_readme.ts` renders. A cell may be "yes" only if the gaps of the suite allow it. */
import { type Gap, gaps } from "../suite/gaps/gaps.ts";

/** The runtimes, each with the hosts of the suite that run on it. */
const RUNTIMES = {
  Node: ["node", "srvx", "h3", "hono"],
  Bun: ["bun"],
  Deno: ["deno"],
  Workers: ["workerd"],
} as const satisfies Record<string, readonly Gap["host"][]>;

type Runtime = keyof typeof RUNTIMES;

interface Feature {
  name: string;
  /** The text of a runtime's cell if it is not "yes". */
  says: Partial<Record<Runtime, string>>;
  /** The reasons of the gaps that limit the feature. A runtime that has one of them may not have a "yes". */
  gaps: string[];
}

const FEATURES: Feature[] = [
  {
    name: "streaming in both directions",
    says: {
      Bun: "yes; a response begins with its first chunk",
      Deno: "yes; an upload stalls once your code streams the response",
      Workers: "yes; `timeout` may end a slow upload",
    },
    gaps: [
      "response headers are sent only with the first chunk of the body",
      "an upload stalls once a response that user code streams has begun",
      "`timeout` may end an upload of up to 64 KiB that arrives slowly",
    ],
  },
  {
    name: "a client's disconnection aborts the upstream request",
    says: {
      Deno: "yes, except after an upload in several packets",
      Workers:
        "with the flag `enable_request_signal`; after a FIN, at the next write; never in `wrangler dev`",
    },
    gaps: [
      "a client that disconnects after an upload in several packets does not stop the upstream request",
      "a client that disconnects by FIN stops the upstream request only when the next bytes are written to it",
    ],
  },
  {
    name: "WebSockets",
    says: {
      Node: "with `attach` or `plugin`",
      Bun: "message by message; `Bun.serve` needs `websocket`",
      Deno: "message by message",
    },
    gaps: [
      "a WebSocket handshake with bytes behind it in the same packet is refused",
      "a client whose upstream does not read is closed with 1013 once 16 MiB wait",
    ],
  },
  {
    name: "trailers in both directions",
    says: {
      Bun: "no; a request with trailers gets 400",
      Deno: "no: dropped",
      Workers: "no: dropped",
    },
    gaps: [
      "requests with trailers are answered with 400",
      "trailer fields of requests are dropped",
      "trailer fields of responses are dropped",
    ],
  },
  {
    name: "HTTP/2 to upstreams",
    says: {
      Node: "with `http2`",
      Bun: "with `http2`",
      Deno: "with `http2`",
      Workers: "the runtime chooses",
    },
    gaps: [],
  },
  {
    name: "options of connections (`pool`)",
    says: { Workers: "no: refused" },
    gaps: [],
  },
  {
    name: "the client's address in `X-Forwarded-For`",
    says: {
      Bun: "from the second argument of `fetch`",
      Deno: "from the second argument of `fetch`",
      Workers: "on Cloudflare, from `CF-Connecting-IP`",
    },
    gaps: [],
  },
];

/** Returns a cell of the table, and throws if the gaps contradict it. */
function cellOf({ name, says, gaps: reasons }: Feature, runtime: Runtime): string {
  const hosts: readonly Gap["host"][] = RUNTIMES[runtime];
  const found = gaps.find(({ host, reason }) => hosts.includes(host) && reasons.includes(reason));
  const said = says[runtime];
  if (found !== undefined && said === undefined) {
    throw new Error(
      `"${name}" on ${runtime} needs a text in test/project/_support.ts: ${found.reason}`,
    );
  }
  return said ?? "yes";
}

/** Returns the rows of the table, the first of which has the titles. */
export function supportRows(): string[][] {
  const runtimes = Object.keys(RUNTIMES) as Runtime[];
  for (const reason of FEATURES.flatMap((feature) => feature.gaps)) {
    if (!gaps.some((gap) => gap.reason === reason)) throw new Error(`no gap: ${reason}`);
  }
  const rows = FEATURES.map((feature) =>
    [feature.name].concat(runtimes.map((runtime) => cellOf(feature, runtime))),
  );
  return [["", ...runtimes], ...rows];
}
