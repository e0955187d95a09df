import type { Context } from "../request/incoming.ts";
import { callback, choice, either, off, ranges, text, toggle, TOKEN } from "./kinds.ts";
import type { Flags, Schema } from "./schema.ts";

/** The options about what the upstream is told of the client, and what proxies in front are believed. */
export interface ForwardingOptions {
  /**
   * Tells the upstream about the client: `true` sets `X-Forwarded-For`, `-Proto`, `-Host` and `-Port`, `"forwarded"` sets
   * `Forwarded`, and `false` sets neither.
   *
   * The client's own fields of these names are dropped first, unless `trustProxy` trusts their sender. Fields of the kind
   * that is not set are dropped even then, so that the two kinds cannot contradict each other. `by` in `Forwarded` is the
   * pseudonym of `via`.
   * @default true
   * @see https://www.rfc-editor.org/rfc/rfc7239
   */
  xfwd?: boolean | "forwarded";
  /**
   * Which peers are proxies of yours, whose forwarding fields are kept and continued: all of them, none, those at these
   * addresses and CIDR ranges, or those whose address the predicate accepts.
   *
   * `"loopback"`, `"linklocal"` and `"uniquelocal"` name ranges, as in Express. The chain of addresses is read from right to
   * left; the addresses left of the first untrusted one are dropped, because the client may have written them. A trusted
   * proxy must set or drop all forwarding fields itself, since the upstream gets those that it lets through. `true` keeps
   * the entire chain, so that clients that connect directly can forge their address; only `true` trusts a peer whose
   * address is unknown.
   * @default false
   * @example ["10.0.0.0/8", "fd00::/8", "loopback"]
   * @see https://www.rfc-editor.org/rfc/rfc7239#section-8.1
   */
  trustProxy?: boolean | readonly string[] | ((address: string) => boolean);
  /**
   * Returns the client's address, where the runtime does not know it or knows only that of a proxy; `undefined` for
   * unknown. `context` is what the server passed to `fetch`.
   *
   * A value that is not a single address counts as unknown. An address taken from a field that clients can send may be
   * forged. `trustProxy` uses it only where the runtime knows no address.
   * @example (request) => request.headers.get("cf-connecting-ip") ?? undefined
   */
  clientAddress?: (request: Request, context: Context) => string | undefined;
  /**
   * Appends this pseudonym to `Via`; `false` appends nothing, because some upstreams (nginx) do not compress responses to
   * requests with `Via`.
   *
   * A request that has passed a proxy of this name before is in a loop and gets 508. Responses get no `Via`.
   * @default false
   * @see https://www.rfc-editor.org/rfc/rfc9110#section-7.6.3
   */
  via?: string | false;
}

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

export const forwardingFlags: Flags<ForwardingOptions> = {
  heading: "Forwarding",
  flags: {
    xfwd: "send X-Forwarded-*, nothing, or Forwarded",
    trustProxy: {
      value: "<addresses>",
      help: "proxies of yours, such as 10.0.0.0/8, or true for all",
    },
    via: { value: "<name>", help: "append this pseudonym to Via" },
  },
};
