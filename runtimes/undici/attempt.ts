import type { Dispatcher } from "undici";
import { type Inlet, ResponseBody } from "../../src/body/responsebody.ts";
import type { BodySource } from "../../src/body/source.ts";
import type { Scope } from "../../src/exchange/scope.ts";
import { badLength, ProxyError } from "../../src/error.ts";
import { isEventStream } from "../../src/fields/headers.ts";
import type { UpstreamRequest, UpstreamResponse } from "../../src/transport.ts";
import { copyOf } from "../sockets/buffercodec.ts";
import { toUndiciError } from "./errors.ts";
import { readReason, toFields } from "./fields.ts";
import { toOptions } from "./options.ts";
import { hadReceived, isReset } from "./sockets.ts";
import { Upload } from "./upload.ts";

/** What an attempt needs of its transport. */
export interface Client {
  readonly dispatcher: Dispatcher;
  /** Whether the dispatcher is the transport's own, and so no code of the app's is in it. */
  readonly isOwn: boolean;
  /** The request is being sent on a connection. */
  onStart?(): void;
}

/** Interim responses (1xx) to one request; without a limit, an upstream keeps the event loop busy until the deadline. */
const MAX_INTERIM = 64;

/** One request through a dispatcher: the handler of undici's that receives the response. */
export class Attempt implements Dispatcher.DispatchHandler, Inlet {
  readonly #client: Client;
  readonly #scope: Scope;
  readonly #method: string;
  readonly #resolve: (reply: UpstreamResponse) => void;
  readonly #reject: (error: ProxyError) => void;
  /** The request, until undici has it. */
  #request: UpstreamRequest | undefined;
  #upload: Upload | undefined;
  #controller: Dispatcher.DispatchController | undefined;
  #body: ResponseBody | undefined;
  #error: ProxyError | undefined;
  #isOver = false;
  /** Whether a byte of a response has arrived. */
  #isResponding = false;
  #isAnswered = false;
  /** Whether the connection's end is the end of the body (RFC 9112 §6.3). */
  #endsWithConnection = false;
  #interim = 0;

  constructor(
    client: Client,
    request: UpstreamRequest,
    scope: Scope,
    resolve: (reply: UpstreamResponse) => void,
    reject: (error: ProxyError) => void,
  ) {
    this.#client = client;
    this.#request = request;
    this.#method = request.method;
    this.#scope = scope;
    this.#resolve = resolve;
    this.#reject = reject;
    scope.onAbort(this);
  }

  /** Hands the request to undici. */
  run(): void {
    // Aborted before.
    if (this.#isOver) return;
    try {
      const request = this.#request as UpstreamRequest;
      const sent = this.#toSent(request.body, request.contentLength);
      this.#request = undefined;
      const { dispatcher, isOwn } = this.#client;
      dispatcher.dispatch(toOptions(request, sent, isOwn), this);
    } catch (thrown) {
      this.fail(thrown);
    }
  }

  /** Stops the attempt, however far it has come. */
  fail(thrown: unknown): void {
    if (this.#isOver) return;
    this.#isOver = true;
    const error = toUndiciError(thrown, {
      isStarted: this.#controller !== undefined,
      isAnswered: this.#isAnswered,
      isStale: !this.#isResponding && hadReceived(thrown),
    });
    this.#error = error;
    this.#leaveBody();
    this.#scope.end();
    this.#reject(error);
    this.#body?.fail(error);
    // undici calls onResponseError for this, which does nothing any more.
    this.#controller?.abort(error);
  }

  /** The body as undici takes it: bytes where all of it has arrived. */
  #toSent(body: BodySource | null, contentLength: number | undefined): Uint8Array | Upload | null {
    if (body === null) return null;
    const { isOwn } = this.#client;
    const bytes = body.whole();
    if (bytes !== undefined && bytes.byteLength !== (contentLength ?? bytes.byteLength))
      throw badLength();
    if (bytes === undefined) {
      return (this.#upload = new Upload(body, contentLength, this.#scope, !isOwn));
    }
    if (bytes.byteLength === 0) return null;
    // These bytes may be sent again, and interceptors of the app's may keep or change what they see.
    return isOwn ? bytes : copyOf(bytes);
  }

  /** Has a request body that is not sent to its end flow past: its client may not read the response before. */
  #leaveBody(): void {
    const body = this.#request?.body;
    this.#request = undefined;
    // Where all of it has arrived, another attempt can send it.
    if (this.#upload !== undefined) this.#upload.destroy();
    else if (body && !isWhole(body)) body.cancel();
  }

  // ── the handler of undici's ──

  onRequestStart(controller: Dispatcher.DispatchController): void {
    // Aborted while it waited for a connection. An error keeps undici from sending the request; an abort would close
    // the connection.
    if (this.#error !== undefined) throw this.#error;
    if (this.#controller === undefined) this.#client.onStart?.();
    this.#controller = controller;
  }

  onResponseStarted(): void {
    this.#isResponding = true;
  }

  onResponseStart(
    controller: Dispatcher.DispatchController,
    status: number,
    parsed: Record<string, string | string[] | undefined>,
    statusText?: string,
  ): void {
    if (this.#isOver) return;
    // The final response follows an interim one (RFC 9110 §15.2).
    if (status < 200) return this.#onInterim();
    this.#isResponding = this.#isAnswered = true;
    const headers = toFields(controller.rawHeaders, parsed);
    // Each field is a view of all bytes that were read: while a response is silent, they would stay in memory.
    controller.rawHeaders = null;
    this.#scope.headersReceived(isEventStream(headers));
    const bodyless = this.#method === "HEAD" || status === 204 || status === 304;
    if (!bodyless) {
      const length = parsed["content-length"];
      this.#endsWithConnection = length === undefined && parsed["transfer-encoding"] === undefined;
      this.#body = new ResponseBody(this.#scope, this, toLength(length));
    }
    this.#resolve({
      status,
      statusText: readReason(statusText),
      headers,
      body: this.#body ?? null,
    });
  }

  #onInterim(): void {
    this.#isResponding = true;
    if (++this.#interim <= MAX_INTERIM) return;
    this.fail(new ProxyError("http_protocol_error", { message: "too many interim responses" }));
  }

  onResponseData(_controller: unknown, chunk: Buffer): void {
    if (this.#isOver) return;
    // Its receiver may transfer the memory, and may not see other bytes in it.
    const isAll = chunk.byteLength === chunk.buffer.byteLength;
    this.#body?.push(isAll ? chunk : copyOf(chunk));
  }

  onResponseEnd(): void {
    if (this.#isOver) return;
    if (this.#endsWithConnection && isReset()) {
      return this.fail(new ProxyError("http_response_incomplete", { message: "reset" }));
    }
    this.#isOver = true;
    // The response is complete first: undici breaks off the upload.
    if (this.#upload?.readableEnded === false) this.#upload.destroy();
    if (this.#body === undefined) this.#scope.end();
    else this.#body.end();
  }

  onResponseError(_controller: unknown, thrown: Error): void {
    this.fail(thrown);
  }

  // ── the response body's inlet ──

  cancel(reason: ProxyError): void {
    this.fail(reason);
  }

  pause(): void {
    if (!this.#isOver) this.#controller?.pause();
  }

  resume(): void {
    // After the end, the connection's parser reads another response.
    if (!this.#isOver) this.#controller?.resume();
  }
}

function isWhole(body: BodySource): boolean {
  try {
    return body.whole() !== undefined;
  } catch {
    return false;
  }
}

function toLength(value: string | string[] | undefined): number | undefined {
  return typeof value === "string" && /^\d{1,15}$/.test(value) ? Number(value) : undefined;
}
