/**
 * Upgrades that a server has passed to the app as ordinary requests (`attach` with `routes`). When the app passes one to a
 * proxy, the proxy can still switch the client's connection.
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
 * The header field with the random token of an upgrade. In a web `Request`, the token identifies the upgrade if the app has
 * copied the request, so that Node's request is not known. In a response, it shows that the app returns the response of the
 * proxy, or a copy of it.
 *
 * An `AsyncLocalStorage` would need no field, but a callback of a shared connection, such as one to a database, may run in the
 * context of another client's request.
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
   * Takes the tunnel that a call of a proxy has opened; see `Incoming.completeUpgrade`.
   * @returns the response that the app must return; when the server writes its head, the client gets the 101
   * @throws ProxyError if the upgrade already has a tunnel, or was already answered
   */
  take(
    incoming: Incoming,
    response: Response,
    tunnel: Tunnel,
    options: TunnelOptions,
  ): Response | Promise<Response>;
  /**
   * Answers the upgrade. Called with the status and the fields of the first response head that the app writes.
   * @returns whether the client has got a 101 (over HTTP/2, a 200); if not, it gets the app's response
   * @throws TypeError, over HTTP/2 ProxyError, for a field that middleware has made invalid
   */
  answer(status: unknown, fields: HeaderList): boolean;
}

/**
 * The upgrades that the app has not answered yet. Each has two keys: its token, and the array `rawHeaders` of its message,
 * which a wrapper around the message shares.
 */
export const unanswered: Map<HeaderList | string, RoutedUpgrade> = new Map();

/** Removes `TOKEN_FIELD` from the request of a client, so that no client can use the token of another client's upgrade. */
export function dropToken({ rawHeaders, headers }: IncomingMessage): void {
  if (unanswered.size === 0 || unanswered.has(rawHeaders)) return;
  removeHeader(rawHeaders, TOKEN_FIELD);
  Reflect.deleteProperty(headers, TOKEN_FIELD);
}

/** Returns the upgrade of a web request. The token is used only if Node's request is not known. */
export function findUpgrade(
  message: IncomingMessage | undefined,
  { headers }: Request,
): RoutedUpgrade | undefined {
  return unanswered.get(message?.rawHeaders ?? headers.get(TOKEN_FIELD) ?? "");
}

/**
 * Connects the request of an exchange with an upgrade, so that the exchange can switch the client's connection. Removes the
 * token.
 */
export function joinUpgrade<I extends Incoming>(incoming: I, upgrade: RoutedUpgrade): I {
  const headers = withoutNames(incoming.headers, TOKEN_FIELDS);
  // A client may offer several protocols. Keep only the chosen one, so that the forwarding proxy does not choose another.
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
