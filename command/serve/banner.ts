/** What the command prints when it listens. */
import type { RouteSettings, Settings } from "../config/settings.ts";
import type { ServerSettings } from "../flags/commandoptions.ts";
import { isTargetList, nameUpstreams } from "../flags/severalupstreams.ts";
import { shareLimits } from "../limits/clientlimits.ts";
import { hasTerminal } from "../log/ownmessages.ts";
import { describeRoute } from "./routecondition.ts";
import { renderFirstSteps } from "./demo.ts";
import type { Front } from "./listen.ts";
import { nearOrigin } from "./loopback.ts";

/**
 * Renders what the command prints when it listens.
 * @param demo the address of the demo upstream, if there is one
 */
export function renderBanner(
  { address, redirect }: Pick<Front, "address" | "redirect">,
  { routes, server: { record, recordSecrets } }: Settings,
  demo: string | undefined,
): string {
  const [first] = routes as [RouteSettings];
  const to = demo === undefined ? show(first.options.target) : `a demo upstream on ${demo}`;
  const isOne = takesOne(routes);
  const title = `fetchway listens on ${address} and forwards ${isOne ? `to ${to}` : `by ${routes.length} routes`}`;
  return [
    title,
    ...(isOne ? [] : renderRoutes(routes)),
    ...(redirect === undefined ? [] : [`  ${redirect} redirects to https:`]),
    ...(record === undefined
      ? []
      : [`  recording to ${record}: bodies${recordSecrets ? ", and secrets" : ""} included`]),
  ].join("\n");
}

/** Renders what the user may try next; `""` unless the demo runs, or a single route takes all requests. */
export function renderHint(
  address: string,
  { routes }: Settings,
  demo: string | undefined,
): string {
  const near = nearOrigin(address).replace(/^unix:(.*)$/s, "--unix-socket $1 http://localhost");
  if (demo !== undefined) {
    const steps = renderFirstSteps(near).map((step) => `  ${step}`);
    const end = hasTerminal ? "; Ctrl+C stops it." : ":";
    return [`Try it from another terminal${end}`, "", ...steps].join("\n");
  }
  return takesOne(routes) ? `  curl -i ${near}/` : "";
}

/** Whether there is only one route, and it takes all requests. */
function takesOne(routes: readonly RouteSettings[]): boolean {
  return routes.length === 1 && routes.map(describeRoute).join() === "/";
}

/** If the limit of open files is lower than this, the banner shows how many clients it allows. */
const FEW_FILES = 4096;

/** Renders how many clients a low limit of open files allows; undefined if the limit is not low. */
export function renderFewFiles(server: ServerSettings, workers = 1): string | undefined {
  const { openFiles = Infinity, maxConnections } = shareLimits(server, workers);
  if (openFiles >= FEW_FILES) return undefined;
  const each = workers === 1 ? "" : " of each worker";
  return `  at most ${maxConnections} clients${each} at the same time: ulimit -n is ${openFiles}`;
}

function renderRoutes(routes: readonly RouteSettings[]): string[] {
  const width = Math.max(...routes.map((route) => describeRoute(route).length));
  return routes.map(
    (route) => `  ${describeRoute(route).padEnd(width)}  ${show(route.options.target)}`,
  );
}

/** Renders a target for the banner, without its query, which may hold a secret. */
function show(target: RouteSettings["options"]["target"]): string {
  const several = nameUpstreams(target, show);
  if (several !== undefined || isTargetList(target)) return several ?? "";
  if (typeof target === "function") return "a function";
  if (typeof target === "object" && "fetch" in target) return "an app in this process";
  if (typeof target === "object" && "pick" in target) return "several upstreams";
  const url = typeof target === "object" && "url" in target ? target.url : target;
  if (typeof url === "string" && url.startsWith("unix:")) return url;
  const { origin, pathname, search } = new URL(url);
  return `${origin}${pathname === "/" ? "" : pathname}${search === "" ? "" : "?…"}`;
}
