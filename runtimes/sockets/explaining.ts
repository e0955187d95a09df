import type { ExplainingProxy, Route, Runtime } from "../../src/proxy.ts";

/**
 * Makes the member `explain` of proxies. The code that explains is loaded with the first call, because most programs never
 * need it.
 */
export function addExplain(route: Route, runtime: Runtime): ExplainingProxy {
  return {
    async explain(request, context) {
      const { explainRequest } = await import("../../src/explain/explain.ts");
      return explainRequest(route, runtime, request, context);
    },
  };
}
