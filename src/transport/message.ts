import type { BodySource } from "../body/source.ts";
import type { OriginalFields } from "../fields/amend.ts";
import type { HeaderList } from "../fields/headers.ts";
import type { Upstream } from "../target/target.ts";
import type { HandedSocket, Tunnel } from "./tunnel.ts";

/** Details of a message that only workerd sets. Interceptors pass them on. */
export interface Hints {
  /** The header fields as the runtime's own `Headers`, which keep more than a list can. */
  readonly fields?: OriginalFields;
  /** Whether the body of a response is encoded already as `Content-Encoding` says, so that workerd must not encode it. */
  readonly isEncoded?: boolean;
}

/**
 * One request to one upstream. A step that changes it, such as an interceptor, passes on a changed copy, and a redirect makes
 * a new request from the request that was redirected.
 */
export interface UpstreamRequest {
  /** The upstream that the request goes to. */
  readonly upstream: Upstream;
  /** The method, as it goes into the request line. */
  readonly method: string;
  /** The path and query in origin-form, byte for byte as they go into the request line. */
  readonly path: string;
  /** All header fields except message framing and `Host`, which the transport writes. */
  readonly headers: HeaderList;
  /** The `Host` to send; undefined for the upstream's own authority. */
  readonly host: string | undefined;
  /** The body; `null` for none. */
  readonly body: BodySource | null;
  /** The length of a streamed body in bytes, where it is known. */
  readonly contentLength: number | undefined;
  /**
   * The protocol to switch the connection to. The transport writes it as `Upgrade`, and resolves to a response with a
   * `tunnel` if the upstream answers 101.
   */
  readonly upgrade?: string | undefined;
  /**
   * Whether the client accepts trailer fields, and the server can send them. If so, the transport says that in `TE`.
   */
  readonly acceptsTrailers?: boolean;
  /** The names of the trailer fields that the client announces; the transport writes them as `Trailer`. */
  readonly trailer?: string | undefined;
  /** Whether the request needs a new connection, because an earlier attempt has failed. */
  readonly newConnection?: boolean;
  /** The header fields before hooks and interceptors changed them; set only where redirects are followed. */
  readonly headersBeforeHooks?: HeaderList | undefined;
  /** Details that only one runtime needs. */
  readonly hints?: Hints | undefined;
}

/** A response on its way to the client: the response of an upstream, or one that was made from an error. */
export interface UpstreamResponse {
  /** The status code. */
  readonly status: number;
  /** The reason phrase; `""` for none. */
  readonly statusText: string;
  /** The header fields. */
  readonly headers: HeaderList;
  /** The body; `null` for none. */
  readonly body: BodySource | null;
  /** The connection to an upstream that has switched protocols. A response with the status 101 has this or a `webSocket`. */
  readonly tunnel?: Tunnel | undefined;
  /** The names of the trailer fields that the upstream announces. */
  readonly trailer?: string | undefined;
  /** The WebSocket to the upstream, if the runtime's HTTP client exposes a WebSocket instead of a connection. */
  readonly webSocket?: HandedSocket | undefined;
  /**
   * The request that this response answers, if a redirect led to that request; undefined for a response to the first
   * request.
   */
  readonly request?: UpstreamRequest | undefined;
  /** The upstream that has responded, where it is not the one that the request was sent to first. */
  readonly upstream?: Upstream | undefined;
  /** Details that only one runtime needs. */
  readonly hints?: Hints | undefined;
}

/** Cancels the body of a request or a response that nothing will read, and closes the connection of a 101. */
export function discardBody(
  message: Switched & {
    readonly body: BodySource | null;
  },
): void {
  message.body?.cancel();
  closeSwitched(message);
}

/** Closes the connection of a 101 response that the client does not get. */
export function closeSwitched({ tunnel, webSocket }: Switched): void {
  tunnel?.destroy();
  webSocket?.destroy();
}

type Switched = Partial<Pick<UpstreamResponse, "tunnel" | "webSocket">>;
