import type { Transport } from "../transport.ts";
import { callback, object } from "./kinds.ts";
import { isRecord, type Schema } from "./schema.ts";

/** The options about what sends the requests. */
export interface ClientOptions {
  /** Aborts the upstream request when the signal fires, in the same way as a client that disconnects. */
  signal?: AbortSignal;
  /**
   * A `fetch`-shaped function that sends the requests instead of the runtime's own client.
   *
   * It must honour `redirect: "manual"`. It is told to accept no content coding, and expected to decode only responses from
   * the network. Bind methods to their object. To call an app in this process, pass the app as `target` instead; that
   * target takes precedence.
   * @example (url, init) => fetch(url, { ...init, dispatcher })
   */
  fetch?: (url: string, init: RequestInit) => Response | Promise<Response>;
  /** The connections to use, made by `createTransport`. The proxy does not close them. */
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
