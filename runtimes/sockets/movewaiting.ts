import type { Exchange } from "../../src/pipeline/exchange.ts";
import { forwardAgain } from "../../src/pipeline/pipeline.ts";
import type { Route, WaitingProxy } from "../../src/proxy.ts";

/** The route of each proxy, by the proxy's own function `moveWaiting`. */
const routes: WeakMap<WaitingProxy["moveWaiting"], Route> = new WeakMap();

/** Makes the member `moveWaiting`, which sends each waiting request through the proxy that `choose` returns. */
export function addMoveWaiting(route: Route): WaitingProxy {
  const moveWaiting: WaitingProxy["moveWaiting"] = (choose) =>
    route.plan.held?.move((moved) => {
      const exchange = moved as Exchange;
      const { target, plan } = routes.get(choose(exchange.incoming.request()).moveWaiting) as Route;
      return forwardAgain(exchange, target, plan);
    });
  routes.set(moveWaiting, route);
  return { moveWaiting };
}
