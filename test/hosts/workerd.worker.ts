/** Run by workerd itself: nothing of Node's here. */
import { createProxy, type Proxy } from "../../runtimes/workerd.ts";
import { createSetup, type SetupName } from "../_setups.ts";

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
    // A setup with an option that Workers refuse runs without it; its own test is then a gap.
    const { host: _host, changeOrigin: _changeOrigin, ...others } = options;
    return createProxy({ target, ...others });
  }
}

let proxy: Proxy | undefined;

const worker: { fetch(request: Request, env: Env): Promise<Response> } = {
  fetch(request, env) {
    proxy ??= create(env);
    return proxy.fetch(request, env);
  },
};
export default worker;
