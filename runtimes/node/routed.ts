/**
 * Upgrades that a server has passed to the app as ordinary requests (`attach` with `routes`). If the app passes such a request to
 * a proxy, the proxy can switch the client's connection.
 */
import type { IncomingMessage } from "node:http";
import {
  type HeaderList,
  isName,
  NameSet,
  removeHeader,
  withoutNames,
} from "../../src/fields/headers.ts";
import type { TunnelOptions } from "../../src/options/limitoptions.ts";
import type { Incoming } from "../../src/request/incoming.ts";
import { type Tunnel, WatchedTunnel } from "../../src/transport/tunnel.ts";

/**
 * The field with the random token of an upgrade. In the request, the token identifies a copy of the web `Request` that does not
 * show Node's request. In a response of the app, it shows that the app returns the response of the proxy, or a copy of it.
 *
 * An `AsyncLocalStorage` would need no field, but code that a shared connection calls back, such as one to a database, may run
 * in the context of another client's request.
 */
export const TOKEN_FIELD = "fetchway-upgrade";

const TOKEN_FIELDS = new NameSet([TOKEN_FIELD]);

/** An upgrade that the app has not answered yet. */
export interface RoutedUpgrade {
  /** Node's request. */
  readonly message: IncomingMessage;
  /** The protocol to which the connection can be switched. */
  readonly protocol: string;
  /**
   * Takes the tunnel that a call of a proxy has opened; see `completeUpgrade`.
   * @returns the response for the app to return; when the server writes its head, the client gets the 101
   * @throws ProxyError if the upgrade has a tunnel already, or an answer
   */
  take(
    incoming: Incoming,
    response: Response,
    tunnel: Tunnel,
    options: TunnelOptions,
  ): Response | Promise<Response>;
  /**
   * Decides with the first head that the app writes.
   * @returns whether the client has got a 101; if not, it gets the app's response
   * @throws TypeError for a field that middleware has made invalid
   */
  answer(status: unknown, fields: HeaderList): boolean;
}

/**
 * The upgrades that the app has not answered yet. Each is stored under the list `rawHeaders` of its message, which a wrapper
 * around the message has too, and under its token.
 */
export const unanswered: Map<HeaderList | string, RoutedUpgrade> = new Map();

/** Removes the field from a request of a client, while the value may be the token of another client's upgrade. */
export function dropToken({ rawHeaders, headers }: IncomingMessage): void {
  if (unanswered.size === 0 || unanswered.has(rawHeaders)) return;
  removeHeader(rawHeaders, TOKEN_FIELD);
  Reflect.deleteProperty(headers, TOKEN_FIELD);
}

/** Returns the upgrade to which a web request belongs. The token counts only if Node's request is not known. */
export function findUpgrade(
  message: IncomingMessage | undefined,
  { headers }: Request,
): RoutedUpgrade | undefined {
  return unanswered.get(message?.rawHeaders ?? headers.get(TOKEN_FIELD) ?? "");
}

/** Lets the exchange of a request switch the connection of an upgrade, and removes the token from the request. */
export function joinUpgrade<I extends Incoming>(incoming: I, upgrade: RoutedUpgrade): I {
  const headers = withoutNames(incoming.headers, TOKEN_FIELDS);
  // A client may offer several protocols. The proxy that forwards the request must not choose another one.
  for (let i = 0; i < headers.length; i += 2) {
    if (isName(headers[i] as string, "upgrade")) headers[i + 1] = upgrade.protocol;
  }
  return Object.assign(incoming, {
    headers,
    upgrade: upgrade.protocol,
    watchTunnel: (...watched) => new WatchedTunnel(...watched),
    completeUpgrade: (response, tunnel, options) =>
      upgrade.take(incoming, response, tunnel, options),
  } satisfies Partial<Incoming>);
}
