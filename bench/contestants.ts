/** The proxies that are compared. */
import { fileURLToPath } from "node:url";
import {
  type Command,
  goCommand,
  hasCommand,
  nginxCommand,
  type Place,
  workerdCommand,
} from "./commands.ts";

/** The part of a contestant in comparisons: ratios are computed between roles. */
export type Role =
  /** This project. */
  | "fetchway"
  /** The control: no proxy on Node, or on workerd, can be much cheaper. */
  | "floor"
  /** Another proxy for Node, which a user could choose instead. */
  | "peer"
  /** The proxy that a framework itself provides, when Fetchway also runs in that framework. */
  | "own"
  /** A proxy that only calls `fetch`, on a runtime other than Node. */
  | "naive"
  /** A proxy that is not written in JavaScript. */
  | "reference";

export interface Contestant {
  /** The name for `--only`. */
  readonly name: string;
  readonly title: string;
  readonly role: Role;
  /** The name of a contestant with the role "own" or "naive" with which this one is also compared. */
  readonly rival?: string;
  /** The name of the floor with which this contestant is compared; `floor` on Node. */
  readonly floor?: string;
  /** The packages or commands that it uses, besides Fetchway and Node. */
  readonly uses: readonly string[];
  /** Returns the reason why it cannot run on this machine; undefined if it can. */
  missing?(): string | undefined;
  command(place: Place): Command | Promise<Command>;
}

const fileOf = (name: string): string =>
  fileURLToPath(new URL(`contestants/${name}.ts`, import.meta.url));
const binOf = (name: string): string =>
  fileURLToPath(new URL(`../node_modules/.bin/${name}`, import.meta.url));

function onNode(
  name: string,
  title: string,
  role: Role,
  uses: readonly string[],
  rival?: string,
): Contestant {
  return {
    name,
    title,
    role,
    uses,
    ...(rival && { rival }),
    floor: "floor",
    command: () => [process.execPath, fileOf(name)],
  };
}

const FLOOR_ON_WORKERD = "workerd-floor";

function on(runtime: "bun" | "deno" | "workerd"): Contestant[] {
  const command = (name: string, place: Place): Command | Promise<Command> => {
    if (runtime === "bun") return [binOf("bun"), fileOf(name)];
    if (runtime === "deno")
      return [binOf("deno"), "run", "--allow-net", "--allow-env", fileOf(name)];
    return workerdCommand(binOf("workerd"), fileOf(name), place);
  };
  const title = { bun: "Bun", deno: "Deno", workerd: "workerd" }[runtime];
  const naive = `${runtime}-naive`;
  const overFetch: Contestant = {
    name: `${runtime}-fetch`,
    title: `Fetchway, ${title}, fetch`,
    role: "fetchway",
    uses: [runtime],
    rival: naive,
    command: (place) => command(`${runtime}-fetch`, place),
  };
  return [
    {
      name: runtime,
      title: `Fetchway, ${title}`,
      role: "fetchway",
      uses: [runtime],
      rival: naive,
      ...(runtime === "workerd" && { floor: FLOOR_ON_WORKERD }),
      command: (place) => command(runtime, place),
    },
    {
      name: naive,
      title: `naive fetch, ${title}`,
      role: "naive",
      uses: [runtime],
      command: (place) => command(naive, place),
    },
    // The entry for workerd has no other client.
    ...(runtime === "workerd" ? [] : [overFetch]),
  ];
}

/** Whether a contestant runs on Bun, Deno or workerd. */
export function isOnOtherRuntime({ uses }: Contestant): boolean {
  return ["bun", "deno", "workerd"].some((runtime) => uses.includes(runtime));
}

function needs(command: string): () => string | undefined {
  return () => (hasCommand(command) ? undefined : `${command} is not on the path`);
}

export const contestants: readonly Contestant[] = [
  onNode("floor", "floor: node:http + dispatch", "floor", ["undici"]),
  onNode("node", "Fetchway, node:http", "fetchway", []),
  onNode("node-undici", "Fetchway, node:http, undici", "fetchway", ["undici"]),
  onNode("srvx", "Fetchway, srvx", "fetchway", ["srvx"], "h3-own"),
  onNode("h3", "Fetchway, h3", "fetchway", ["h3"], "h3-own"),
  onNode("hono", "Fetchway, Hono", "fetchway", ["hono", "@hono/node-server"], "hono-own"),
  onNode("httpxy-server", "httpxy server", "peer", ["httpxy"]),
  onNode("httpxy-fetch", "httpxy proxyFetch, srvx", "peer", ["httpxy", "srvx"]),
  onNode("fast-proxy", "fast-proxy", "peer", ["fast-proxy"]),
  onNode("fastify", "@fastify/http-proxy", "peer", ["@fastify/http-proxy", "fastify"]),
  onNode("http-proxy", "http-proxy, with an agent", "peer", ["http-proxy"]),
  onNode("http-proxy-3", "http-proxy-3, with an agent", "peer", ["http-proxy-3"]),
  onNode("http-proxy-middleware", "http-proxy-middleware", "peer", ["http-proxy-middleware"]),
  onNode("h3-own", "h3 proxyRequest", "own", ["h3"]),
  onNode("hono-own", "hono/proxy", "own", ["hono", "@hono/node-server"]),
  {
    name: "go",
    title: "Go ReverseProxy",
    role: "reference",
    uses: ["go"],
    missing: needs("go"),
    command: ({ directory }) => goCommand(directory),
  },
  {
    name: "nginx",
    title: "nginx, one worker",
    role: "reference",
    uses: ["nginx"],
    missing: needs("nginx"),
    command: nginxCommand,
  },
  ...on("bun"),
  ...on("deno"),
  ...on("workerd"),
  {
    name: FLOOR_ON_WORKERD,
    title: "floor: the calls by hand, workerd",
    role: "floor",
    uses: ["workerd"],
    command: (place) => workerdCommand(binOf("workerd"), fileOf(FLOOR_ON_WORKERD), place),
  },
];
