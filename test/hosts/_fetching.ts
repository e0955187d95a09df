/** Proxies with the global `fetch` in place of their own client. Imported by hosts: no runtime's API here. */
import type { CreateProxyOptions, Proxy } from "#proxy";
import type { Setup } from "../_setups.ts";

/** The proxy of a setup; undefined where `fetch` cannot do what that needs, which is said when it is created. */
export function createFetching<P extends Proxy>(
  createProxy: (options: CreateProxyOptions) => P,
  { target, options }: Setup,
): P | undefined {
  try {
    return createProxy({ target, fetch: globalThis.fetch, ...options });
  } catch (error) {
    if (/cannot set Host/.test(String(error))) return undefined;
    throw error;
  }
}

/** Answers in place of a proxy where the setup needs what `fetch` cannot do. */
export const refusing = {
  fetch: async (): Promise<Response> => new Response(null, { status: 500 }),
};
