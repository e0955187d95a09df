import { fields, forwardableNames, names, protocols, text, toggle } from "../schema/kinds.ts";
import type { Schema } from "../schema/schema.ts";

/** The options about the header fields of the upstream request, about upgrades and about TRACE. */
export interface HeaderOptions {
  /**
   * Sets fields of the upstream request; `null` deletes one.
   *
   * The client's own fields with these names never reach the upstream, not even where the value is `null`. The same holds
   * for aliases, in which another character, such as `_`, replaces a `-`. This option takes precedence over all others
   * except `onRequest` and `interceptors`. Hop-by-hop fields and those of the message framing are refused; for `Host`, use the
   * option `host`.
   * `undefined` is refused: it mostly comes from a missing environment variable, and if it were ignored, the upstream would
   * get the client's field.
   * @example { authorization: "Bearer …", cookie: null }
   */
  headers?: Readonly<Record<string, string | null>>;
  /**
   * Names of fields to drop from the request, including the forwarding fields and the `Via` that the proxy adds.
   *
   * This option takes precedence over `forwardHeaders`, and `headers` takes precedence over this option. A field that
   * `onRequest` sets for some requests only, such as the name of a user, must be in this list, because a client could
   * send it with the other requests.
   * @example ["cookie", "x-internal-token"]
   */
  filterHeaders?: readonly string[];
  /**
   * Names of fields to forward although they are dropped by default: `proxy-authorization`, `proxy`, and those
   * by which a client could claim another address: `forwarded`, `x-forwarded-*`, `x-forwarded`, `forwarded-for`, `x-real-ip`,
   * `x-client-ip`, `x-cluster-client-ip`, `client-ip`, `true-client-ip`, `cf-connecting-ip`, `fastly-client-ip`.
   *
   * The client can then send any value in these fields to the upstream. Hop-by-hop fields and those of the message framing
   * are refused.
   * @example ["proxy-authorization"]
   */
  forwardHeaders?: readonly string[];
  /**
   * Whether the upstream gets the target's own `Host`; `false` sends the client's.
   *
   * With `false`, an upstream that trusts `Host` trusts the client. `host` takes precedence over this option.
   * `false` is refused where the transport cannot set `Host`.
   * @default true
   * @see https://www.rfc-editor.org/rfc/rfc9110#section-7.2
   */
  changeOrigin?: boolean;
  /**
   * Sets `Host` of the upstream request.
   *
   * It takes precedence over `changeOrigin`. It is refused where the transport cannot set `Host`.
   * @example "shop.example:8080"
   */
  host?: string;
  /**
   * Lists the protocols of `Upgrade` that are tunnelled: the connection carries their bytes once the upstream has responded
   * with 101. By default, only WebSockets are tunnelled. Any other `Upgrade` is ignored, and the request is forwarded
   * without it; `[]` ignores every `Upgrade`.
   *
   * The upstream must speak these protocols or refuse them: the bytes that the client sends after a 101 are neither parsed
   * nor limited. If the server does not hand over upgrades, the client gets 501; on Node, call `proxy.attach(server)`.
   * @default ["websocket"]
   * @example ["websocket", "tcp"]
   * @see https://www.rfc-editor.org/rfc/rfc9110#section-7.8
   */
  upgrades?: readonly string[];
  /**
   * Whether TRACE is forwarded. By default, it gets 405.
   *
   * The upstream sends the request back in its response, where the client can read all that the proxy has added. So the
   * proxy adds no field of `headers`, no forwarding field and no query of the target to a TRACE, and drops the client's
   * fields that may hold a secret. Fields that `onRequest` and interceptors add are sent. The proxy itself responds to a TRACE
   * with `Max-Forwards: 0`. Where the transport is a `fetch`, as on Workers, TRACE gets 501, because `fetch` cannot send it.
   * @default false
   * @see https://www.rfc-editor.org/rfc/rfc9110#section-9.3.8
   */
  trace?: boolean;
}

export const headerSchema: Schema<HeaderOptions, "changeOrigin" | "upgrades" | "trace"> = {
  headers: { kind: fields },
  filterHeaders: { kind: names },
  forwardHeaders: { kind: forwardableNames },
  changeOrigin: { kind: toggle, default: true },
  host: { kind: text(/^[\w.~:[\]-]+$/, 'use "name" or "name:port"') },
  upgrades: { kind: protocols, default: ["websocket"] },
  trace: { kind: toggle, default: false },
};
