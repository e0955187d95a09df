/**
 * A Worker that forwards `/api` to another Worker through a service binding, and all other requests to a server:
 *
 *     npx wrangler deploy --dry-run    # lists the bindings; without the flag, it deploys
 */
import { proxyFetch } from "fetchway";

interface Env {
  readonly API: { fetch(request: Request): Promise<Response> };
  readonly ORIGIN: string;
}

const worker = {
  fetch(request: Request, env: Env): Promise<Response> {
    return /^\/api(?:\/|$)/.test(new URL(request.url).pathname)
      ? proxyFetch(request, env.API, { stripPrefix: "/api" })
      : proxyFetch(request, env.ORIGIN);
  },
};
export default worker;
