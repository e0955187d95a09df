/** The Worker of the workerd host. It uses no modules of Node. */
import { createProxy, type ExecutionContext, type Proxy } from "../../runtimes/workerd.ts";
import { createSetup, type SetupName } from "./_setups.ts";

interface Env {
  SETUP: SetupName;
  UPSTREAM: string;
  PROXY_OPTIONS: string;
}

function create({ SETUP, UPSTREAM, PROXY_OPTIONS }: Env): Proxy {
  const { target, options } = createSetup(SETUP, UPSTREAM, PROXY_OPTIONS);
  try {
    return createProxy({ target, ...options });
  } catch {
    // On Workers, `createProxy` refuses `host` and `changeOrigin`. The setup runs without them, so their tests are gaps.
    const { host: _host, changeOrigin: _changeOrigin, ...others } = options;
    return createProxy({ target, ...others });
  }
}

let proxy: Proxy | undefined;

const worker: {
  fetch(request: Request, env: Env, execution: ExecutionContext): Promise<Response>;
} = {
  fetch(request, env, execution) {
    proxy ??= create(env);
    return proxy.fetch(request, env, execution);
  },
};
export default worker;
