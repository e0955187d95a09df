import { callback, object } from "../schema/kinds.ts";
import { isRecord, type Schema } from "../schema/schema.ts";
import type { Transport } from "../transport/port.ts";

/** The options that choose the HTTP client, and the signal that aborts its requests. */
export interface ClientOptions {
  /**
   * Aborts the upstream request when the signal fires, as if the client had disconnected; it also ends a tunnel, but not a
   * WebSocket on Workers. After that, all further requests with these options fail, too.
   * @example controller.signal
   */
  signal?: AbortSignal;
  /**
   * A function with the interface of `fetch` that sends the requests instead of the runtime's own transport.
   *
   * The function must honour `redirect: "manual"`. It gets requests with `Accept-Encoding: identity`, unless another option
   * names that field. The proxy assumes that the function decodes every body, as `fetch` does. If the function is a method,
   * bind it to its object. To call an app in this process, pass the app as `target` instead: the body of a response that an app
   * constructs is not decoded, and stays as it is. An app as `target` takes precedence over this option.
   * @example (url, init) => fetch(url, { ...init, dispatcher })
   */
  fetch?: (url: string, init: RequestInit) => Response | Promise<Response>;
  /**
   * The transport to use, made by `createTransport` or by the app. Closing the proxy does not close the transport.
   * @example createTransport({ maxSockets: 50 })
   */
  transport?: Transport;
}

function isTransport(value: unknown): boolean {
  const { name, capabilities, send } = (value ?? {}) as Partial<Transport>;
  return typeof name === "string" && isRecord(capabilities) && typeof send === "function";
}

export const clientSchema: Schema<ClientOptions> = {
  signal: { kind: object((value) => value instanceof AbortSignal, "use an AbortSignal") },
  fetch: { kind: callback },
  transport: {
    kind: object(
      isTransport,
      "use what createTransport() returned, or a Transport with `name`, `capabilities` and `send`",
    ),
  },
};
