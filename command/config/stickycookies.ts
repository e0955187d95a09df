/** Fills in the missing cookie options of sticky routes, so that these work without further options. */
import { createHash, randomBytes } from "node:crypto";
import { policyKeepsClients } from "../flags/severalupstreams.ts";
import type { RouteSettings, Settings } from "./settings.ts";

/** Generates the secret for all sticky routes that configure none. */
export function makeSecret(): string {
  return randomBytes(32).toString("base64url");
}

/**
 * Gives the cookie of each sticky route a secret, and a name that no other route uses, unless the route's options set these.
 * With the same name, the cookie of one route would replace the cookie of another.
 * @param secret the same for all workers, and after a reload of the config file
 */
export function fillCookies(settings: Settings, secret: string): Settings {
  return { ...settings, routes: settings.routes.map((route) => fillCookie(route, secret)) };
}

function fillCookie(route: RouteSettings, secret: string): RouteSettings {
  const { match, when, options } = route;
  const { balance } = options;
  if (balance === undefined || !policyKeepsClients(balance.policy)) return route;
  const isAll = match.join() === "/" && when === undefined;
  const condition = when === undefined ? "" : JSON.stringify(when);
  const own = isAll ? {} : { name: `fetchway-${hashOf(match.toSorted().join() + condition)}` };
  return {
    ...route,
    options: { ...options, balance: { ...balance, cookie: { ...own, secret, ...balance.cookie } } },
  };
}

/**
 * Returns a hash of the patterns and the condition of a route: a unique name for the cookie that does not reveal the route.
 */
function hashOf(text: string): string {
  return createHash("sha256").update(text).digest("base64url").slice(0, 8);
}

/** Returns a notice for the start if a sticky route uses the generated secret; undefined if none does. */
export function describeMadeSecret({ routes }: Settings, secret: string): string | undefined {
  if (!routes.some(({ options }) => options.balance?.cookie?.secret === secret)) return undefined;
  return (
    "  sticky cookies are valid until the command restarts: " +
    "their secret is new at each start, because --sticky-secret is not set"
  );
}
