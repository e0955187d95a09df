/** What the entries for Node, Bun and Deno have in common beside their transport. */
import { holdRequests } from "../../src/exchange/wait.ts";
import { inProcess } from "../../src/fetch/standardapps.ts";
import { explainWherePooled } from "../../src/options/poolcheck.ts";
import type { Exchange } from "../../src/pipeline/exchange.ts";
import { forwardAgain } from "../../src/pipeline/pipeline.ts";
import type { ExplainingProxy, Route, Runtime, WaitingProxy } from "../../src/proxy.ts";
import { createFailureLog } from "./logfailure.ts";
import { findRequestChannel } from "./requestchannel.ts";

/**
 * Makes the parts of a runtime that do not depend on its server.
 * @param readMode returns `NODE_ENV`
 */
export function makeSharedParts(
  readMode: () => string | undefined,
): Pick<Runtime, "explainOption" | "holdRequests" | "inProcess" | "log" | "tracing"> {
  return {
    explainOption: explainWherePooled,
    tracing: findRequestChannel(),
    log: createFailureLog(readMode),
    inProcess,
    holdRequests,
  };
}

/** The route of each proxy, by the proxy's own function `moveWaiting`. */
const routes: WeakMap<WaitingProxy["moveWaiting"], Route> = new WeakMap();

/** Makes the members of a proxy that `Proxy` does not have, and that do not depend on the runtime's server. */
export function makeSharedMembers(route: Route, runtime: Runtime): ExplainingProxy & WaitingProxy {
  /** Sends each waiting request through the proxy that `choose` returns. */
  const moveWaiting: WaitingProxy["moveWaiting"] = (choose) =>
    route.plan.held?.move((moved) => {
      const exchange = moved as Exchange;
      const { target, plan } = routes.get(choose(exchange.incoming.request()).moveWaiting) as Route;
      return forwardAgain(exchange, target, plan);
    });
  routes.set(moveWaiting, route);
  return {
    moveWaiting,
    async explain(request, context) {
      // The code that explains is loaded with the first call, because most programs never need it.
      const { explainRequest } = await import("../../src/explain/explain.ts");
      return explainRequest(route, runtime, request, context);
    },
  };
}
