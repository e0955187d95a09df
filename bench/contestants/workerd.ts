/** Fetchway on workerd. It uses no modules of Node. */
import { createProxy, type Proxy } from "../../runtimes/workerd.ts";

let proxy: Proxy | undefined;

const worker: { fetch(request: Request, env: { TARGET: string }): Promise<Response> } = {
  fetch(request, env) {
    proxy ??= createProxy({ target: env.TARGET });
    return proxy.fetch(request, env);
  },
};
export default worker;
