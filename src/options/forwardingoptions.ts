import { TOKEN } from "../fields/token.ts";
import { callback, choice, either, off, text, toggle } from "../schema/kinds.ts";
import type { Kind, Schema } from "../schema/schema.ts";
import { checkRange } from "../target/address.ts";

/**
 * The value that the server passes together with the request: Deno's `info`, Bun's `server`, a Worker's `env`, Hono's
 * `c.env`.
 */
export type Context = unknown;

/**
 * The options that decide which fields describe the client to the upstream, and which proxies are trusted.
 */
export interface ForwardingOptions {
  /**
   * Which fields describe the client to the upstream: `true` sets `X-Forwarded-For`, `-Proto`, `-Host` and `-Port`,
   * `"forwarded"` sets `Forwarded`, and `false` sets none of them.
   *
   * Fields with these names in the incoming request are dropped, unless `trustProxy` trusts the peer that sent them.
   * With `true` or `"forwarded"`, fields of the other style are dropped even from a trusted peer, so that the two
   * styles cannot contradict each other. With `false`, both styles are forwarded from a trusted peer. The parameter
   * `by` of `Forwarded` is the pseudonym that `via` sets.
   * @default true
   * @see https://www.rfc-editor.org/rfc/rfc7239
   */
  xfwd?: boolean | "forwarded";
  /**
   * Which peers are trusted proxies, whose forwarding fields are kept and extended: `true` for all, `false` for none,
   * an array of addresses and CIDR ranges, or a predicate on an address.
   *
   * `"loopback"`, `"linklocal"` and `"uniquelocal"` name ranges, as in Express. The chain of addresses is read from
   * right to left; the addresses to the left of the first untrusted one are dropped: the client may have written them.
   * A trusted proxy must set or drop all forwarding fields itself, because the upstream gets all of them that the
   * trusted proxy lets through. `true` keeps the entire chain, so that clients that connect directly can forge their
   * address; only `true` trusts a peer whose address is unknown, such as one on a Unix domain socket.
   * @default false
   * @example ["10.0.0.0/8", "fd00::/8", "loopback"]
   * @see https://www.rfc-editor.org/rfc/rfc7239#section-8.1
   */
  trustProxy?: boolean | readonly string[] | ((address: string) => boolean);
  /**
   * Returns the client's address, where the runtime does not know it or knows only the address of a proxy; `undefined`
   * if it is unknown. `context` is the value that the server passed to the proxy's `fetch`.
   *
   * A list of addresses, or another value with a character that no address has, counts as unknown. An address taken from
   * a field that clients can send may be forged. For the forwarding fields, `trustProxy` tests the returned address only
   * where the runtime does not know the peer's address.
   * @example (request) => request.headers.get("cf-connecting-ip") ?? undefined
   */
  clientAddress?: (request: Request, context: Context) => string | undefined;
  /**
   * Appends this pseudonym to `Via`; `false` appends nothing. It is off by default, because some upstreams (nginx) do
   * not compress responses to requests with `Via`.
   *
   * A request whose `Via` contains this pseudonym already is in a loop, and gets 502. The `Proxy-Status` of error
   * responses names the proxy by this pseudonym. Responses get no `Via`.
   * @default false
   * @example "edge"
   * @see https://www.rfc-editor.org/rfc/rfc9110#section-7.6.3
   */
  via?: string | false;
}

/** Addresses and ranges of addresses. */
export const ranges: Kind<readonly string[]> = {
  name: "ranges",
  contains: Array.isArray,
  check(value) {
    if (!Array.isArray(value)) return "";
    // A loop by index does not allocate, unlike `find`.
    for (let i = 0; i < value.length; i++) {
      const wrong = checkRange(value[i]);
      if (wrong !== undefined) return wrong;
    }
    return undefined;
  },
};

export const forwardingSchema: Schema<ForwardingOptions, "xfwd" | "trustProxy" | "via"> = {
  xfwd: {
    kind: either('use true, false or "forwarded"', toggle, choice("forwarded")),
    default: true,
  },
  trustProxy: {
    kind: either(
      "use true, false, an array of addresses and CIDR ranges, or a predicate on an address",
      toggle,
      ranges,
      callback,
    ),
    default: false,
  },
  clientAddress: { kind: callback },
  via: {
    kind: either('use a pseudonym of token characters such as "edge", or false', off, text(TOKEN)),
    default: false,
  },
};
