import { badRequest } from "../../src/error.ts";
import { SMALL_BODY } from "../../src/fetch/requeststream.ts";
import { getHeader, type HeaderList } from "../../src/fields/headers.ts";
import { type Incoming, WebIncoming } from "../../src/request/incoming.ts";
import type { Hints } from "../../src/transport/message.ts";
import { isKey } from "../../src/websocket/handshake.ts";

/**
 * The milliseconds after which the proxy begins to listen for a client's disconnect.
 *
 * Listening to a request's signal costs as much as reading and writing all its header fields, and most exchanges end
 * earlier than this. When a client disconnects earlier, workerd itself ends the exchange, if the Worker does nothing
 * else. Half a second is short enough for the upstream request to be aborted within 1 s of the disconnect.
 */
const LISTEN_AFTER = 500;

/** The bodies of large requests, each with the header fields of its request, for `isPipeable` in clients.ts. */
export const largeBodies: WeakMap<ReadableStream, Headers> = new WeakMap();

class WorkerIncoming extends WebIncoming {
  readonly hints: Hints;
  readonly listenAfter: number = LISTEN_AFTER;

  constructor(request: Request) {
    super(request, readPeerAddress(request));
    this.hints = { fields: { headers: request.headers, list: this.headers } };
    if (this.body !== null && Number(getHeader(this.headers, "content-length")) > SMALL_BODY) {
      largeBodies.set(request.body as ReadableStream, request.headers);
    }
  }

  get upgrade(): string | undefined {
    const upgrade = getHeader(this.headers, "upgrade");
    return upgrade?.toLowerCase() === "websocket" ? "websocket" : undefined;
  }

  /**
   * Checks `Sec-WebSocket-Key`. workerd would accept any value, because it makes its own handshake with the upstream. A request
   * from another Worker has no key.
   * @throws ProxyError 400 for a key that is not valid (RFC 6455 §4.2.1)
   */
  prepareUpgrade(headers: HeaderList): void {
    const key = getHeader(headers, "sec-websocket-key");
    if (key !== undefined && !isKey(key)) throw badRequest("Sec-WebSocket-Key");
  }

  override version(): string {
    const { cf } = this.request() as { cf?: Cf };
    return cf?.httpProtocol?.replace("HTTP/", "") || super.version();
  }
}

/** The properties of `request.cf` that are read. workerd or Cloudflare sets them, and a client cannot forge them. */
interface Cf {
  /** The address and port of the peer, if workerd itself is the server. */
  clientIp?: string;
  /** The data center, on Cloudflare. */
  colo?: string;
  /** The HTTP version such as `HTTP/2`, on Cloudflare. */
  httpProtocol?: string;
}

/**
 * Whether a request has shown that the Worker runs on Cloudflare. Then do not read `cf` again for the address: reading it costs
 * as much as reading all header fields.
 */
let isOnCloudflare = false;

/** Returns the client's address; undefined where neither workerd nor Cloudflare provides it. */
function readPeerAddress(request: Request): string | undefined {
  if (!isOnCloudflare) {
    const { cf } = request as { cf?: Cf };
    if (cf?.clientIp) {
      const address = cf.clientIp.replace(/:\d+$/, "");
      return address.startsWith("[") ? address.slice(1, -1) : address;
    }
    isOnCloudflare = cf?.colo !== undefined;
  }
  // Cloudflare overwrites this field of every request. Elsewhere a client could forge it.
  return isOnCloudflare ? (request.headers.get("cf-connecting-ip") ?? undefined) : undefined;
}

export function readRequest(request: Request): Incoming {
  return new WorkerIncoming(request);
}
