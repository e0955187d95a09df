/** The registry of all proxies that are compared. */
import { fileURLToPath } from "node:url";
import {
  ATTEMPT_TIMEOUT,
  balancingNginxCommand,
  type Command,
  defaultNginxCommand,
  fetchwayCommand,
  goCommand,
  haproxyCommand,
  hasCommand,
  nginxCommand,
  type Place,
  workerdCommand,
} from "./commands.ts";

/** The role of a contestant in comparisons: its figures are compared with those of contestants of other roles. */
export type Role =
  /** This project. */
  | "fetchway"
  /** The control: a proxy that does so little that no other proxy on its runtime can use much less CPU time. */
  | "floor"
  /** Another proxy for Node that a user could choose instead of Fetchway. */
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
  /** The name of the floor with which this contestant is compared; undefined for none. */
  readonly floor?: string;
  /** The packages or commands that the contestant uses, besides Fetchway and Node. */
  readonly uses: readonly string[];
  /** Returns the reason why the contestant cannot run on this machine; undefined if it can. */
  missing?(): string | undefined;
  command(place: Place): Command | Promise<Command>;
}

const fileOf = (name: string): string =>
  fileURLToPath(new URL(`contestants/${name}.ts`, import.meta.url));
export const binOf = (name: string): string =>
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

function on(runtime: "bun" | "deno" | "workerd"): Contestant[] {
  const command = (name: string, place: Place): Command | Promise<Command> => {
    if (runtime === "bun") return [binOf("bun"), fileOf(name)];
    if (runtime === "deno")
      return [binOf("deno"), "run", "--allow-net", "--allow-env", fileOf(name)];
    return workerdCommand(binOf("workerd"), fileOf(name), place);
  };
  const title = { bun: "Bun", deno: "Deno", workerd: "workerd" }[runtime];
  const naive = `${runtime}-naive`;
  const floor = `${runtime}-floor`;
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
      floor,
      command: (place) => command(runtime, place),
    },
    {
      name: naive,
      title: `naive fetch, ${title}`,
      role: "naive",
      uses: [runtime],
      command: (place) => command(naive, place),
    },
    {
      name: floor,
      title: `floor: the calls by hand, ${title}`,
      role: "floor",
      uses: [runtime],
      command: (place) => command(floor, place),
    },
    // On workerd, Fetchway itself sends requests by `fetch`.
    ...(runtime === "workerd" ? [] : [overFetch]),
  ];
}

/** Whether a contestant runs on Bun, Deno or workerd. */
export function isOnOtherRuntime({ uses }: Contestant): boolean {
  return ["bun", "deno", "workerd"].some((runtime) => uses.includes(runtime));
}

/** Returns a contestant that runs a program on the PATH, such as nginx. */
function reference(name: string, title: string, command: Contestant["command"]): Contestant {
  const missing = (): string | undefined =>
    hasCommand(name) ? undefined : `${name} is not on the path`;
  return { name, title, role: "reference", uses: [name], missing, command };
}

/** The contestants that `cpu` compares. Other benches use some of them. */
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
  reference("go", "Go ReverseProxy", ({ directory }) => goCommand(directory)),
  reference("nginx", "nginx, one worker", nginxCommand),
  ...on("bun"),
  ...on("deno"),
  ...on("workerd"),
];

/** The contestants that `fairness` exposes to a crowd of clients: servers with their default limits. */
export const crowded: readonly Contestant[] = [
  {
    name: "fetchway",
    title: "Fetchway, the command",
    role: "fetchway",
    uses: [],
    command: fetchwayCommand,
  },
  reference("haproxy", "HAProxy", haproxyCommand),
  reference("nginx", "nginx with its defaults", defaultNginxCommand),
];

/** The contestants that `overload` overloads; `unbounded` is the command with a very high limit of connections. */
export const overloaded: readonly Contestant[] = [
  ...crowded.slice(0, 1),
  ...crowded
    .slice(0, 1)
    .map((each) =>
      variantOf(
        each,
        { name: "unbounded", title: "Fetchway, --max-connections 16384" },
        (command) => [...command, "--max-connections", "16384"],
      ),
    ),
  reference("go", "Go ReverseProxy", ({ directory }) => goCommand(directory)),
  reference("nginx", "nginx, one worker", nginxCommand),
  reference("haproxy", "HAProxy", haproxyCommand),
];

/** The contestants that choose the less busy of two random upstreams, and retry a failed request once at another upstream. */
export const balancing: readonly Contestant[] = [
  {
    name: "fetchway",
    title: "Fetchway, node:http",
    role: "fetchway",
    uses: [],
    command: ({ targets = [] }) => [
      process.execPath,
      fileOf("balancing"),
      `${ATTEMPT_TIMEOUT}`,
      ...targets,
    ],
  },
  reference("nginx", "nginx", balancingNginxCommand),
];

export function contestantOf(name: string): Contestant | undefined {
  return contestants.find((each) => each.name === name);
}

/** Returns the contestants with these names, in this order. */
export function contestantsOf(...names: readonly string[]): Contestant[] {
  return names.map((name) => {
    const found = contestantOf(name);
    if (found === undefined) throw new Error(`there is no contestant ${name}`);
    return found;
  });
}

/** Returns a contestant with another name and title, and with a changed command. */
export function variantOf(
  contestant: Contestant,
  { name, title }: Pick<Contestant, "name" | "title">,
  change: (command: Command) => Command,
): Contestant {
  const command = async (place: Place): Promise<Command> => change(await contestant.command(place));
  return { ...contestant, name, title, command };
}
