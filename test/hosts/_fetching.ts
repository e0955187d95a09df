/**
 * Creates proxies with the global `fetch` in place of Fetchway's own HTTP client. Hosts on every runtime import this
 * file, so it uses only web APIs.
 */
import type { CreateProxyOptions, Proxy } from "#fetchway";
import type { Setup } from "./_setups.ts";

/**
 * Creates the proxy of a setup, or returns undefined if `createProxy` throws because `fetch` lacks a feature that the
 * setup needs.
 */
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

/** Answers every request with 500, in place of the proxy of a setup that `fetch` cannot support. */
export const refusing = {
  fetch: async (): Promise<Response> => new Response(null, { status: 500 }),
};
