/**
 * The client's side of a WebSocket over HTTP/2 (RFC 8441): its request, which other code sees as an HTTP/1.1 handshake, and its
 * stream. Loaded with the first WebSocket.
 */
import type { IncomingMessage, OutgoingHttpHeaders, ServerResponse } from "node:http";
import type { Http2ServerRequest, Http2ServerResponse, ServerHttp2Stream } from "node:http2";
import type { ProxyError } from "../../src/error.ts";
import type { HeaderList } from "../../src/fields/headers.ts";
import type { Context } from "../../src/options/forwardingoptions.ts";
import type { ClientRules } from "../../src/request/clientkey.ts";
import { toHandshake, withoutHttp1 } from "../../src/websocket/extendedconnect.ts";
import { sendFields, toRegularFields } from "../sockets/http2/http2fields.ts";
import { isWhole, watchEnd } from "../sockets/http2/streamend.ts";
import { closeWhenSent } from "./incomingbody.ts";
import { messageHeaders } from "./internals/rawfields.ts";
import { toHttp1Fields } from "./nodeincoming.ts";
import { UpgradeIncoming } from "./upgradeincoming.ts";
import { UpgradeSocket } from "./upgradesocket.ts";

/** The error code of a stream that is no longer needed (RFC 9113 §7). */
const CANCEL = 8;
/** The error code for a tunnel whose connection to the upstream has failed (RFC 9113 §8.5). */
const CONNECT_ERROR = 10;

/** The request for a WebSocket over HTTP/2, converted to an HTTP/1.1 handshake. */
export class ConnectIncoming extends UpgradeIncoming {
  override readonly method = "GET";
  override readonly headers: HeaderList;
  override readonly fault: ProxyError | undefined;

  constructor(
    req: Http2ServerRequest,
    res: Http2ServerResponse,
    client: ConnectStream,
    ...identity: [rules: ClientRules, context: Context]
  ) {
    const message = req as unknown as IncomingMessage;
    const response = res as unknown as ServerResponse;
    super(message, response, client, "websocket", undefined, ...identity);
    let fields = toHttp1Fields(messageHeaders(message));
    let fault: ProxyError | undefined;
    try {
      fields = toHandshake(fields);
    } catch (error) {
      fault = error as ProxyError;
      // A refused client learns the supported version (RFC 6455 §4.2.2).
      res.setHeader("Sec-WebSocket-Version", "13");
    }
    this.headers = fields;
    this.fault = fault;
  }
}

/** The client's stream of a WebSocket over HTTP/2. */
export class ConnectStream extends UpgradeSocket {
  readonly #stream: ServerHttp2Stream;

  constructor(stream: ServerHttp2Stream) {
    super(stream, new Uint8Array());
    this.#stream = stream;
    watchEnd(stream);
  }

  /**
   * Accepts the WebSocket.
   * @throws ProxyError for a field that cannot be sent
   */
  accept(headers: HeaderList): void {
    const stream = this.#stream;
    const list = [":status", "200", ...toRegularFields(withoutHttp1(headers))];
    // When Node resets a stream, it first sends END_STREAM, which would look like a graceful end. With `waitForTrailers`, only
    // `sendTrailers` sends END_STREAM.
    sendFields(list, (fields) =>
      stream.respond(fields as OutgoingHttpHeaders, { waitForTrailers: true }),
    );
    stream.removeAllListeners("wantTrailers").on("wantTrailers", () => {
      if (!stream.closed && !stream.destroyed) stream.sendTrailers({});
    });
  }

  override destroy(): void {
    this.#reset(CANCEL);
  }

  /** Checks the stream's state, because a stream that is reset also emits `end`. */
  protected override hasEnded(): boolean {
    return isWhole(this.#stream);
  }

  protected override hasClosed(): boolean {
    const { rstCode, aborted } = this.#stream;
    return super.hasClosed() && rstCode === 0 && !aborted;
  }

  /** Only makes the stream close after the response, because the response already writes to this stream. */
  protected override assignTo(): void {
    this.#stream.once("finish", () => closeWhenSent(this.#stream));
  }

  protected override endBoth(): void {
    this.#stream.end(() => closeWhenSent(this.#stream));
  }

  protected override breakOff(): void {
    this.#reset(CONNECT_ERROR);
  }

  #reset(code: number): void {
    this.#stream.close(code);
    // Resume the stream, because a paused stream closes only after its data is read.
    this.#stream.resume();
  }
}
