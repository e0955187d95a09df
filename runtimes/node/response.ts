import type { IncomingMessage, ServerResponse } from "node:http";
import { type BodySource, HIGH_WATER_MARK } from "../../src/body/source.ts";
import { StreamBody } from "../../src/body/stream.ts";
import { toHeaderList, toHeaders } from "../../src/fields/headers.ts";
import type { Incoming } from "../../src/request/incoming.ts";
import type { HeaderList, UpstreamResponse } from "../../src/transport.ts";
import { breakOffRequest, hasObsText, PipedBody } from "./body.ts";
import { toRecord } from "./headers.ts";
import { messageOf, responseOf } from "./incoming.ts";

/** The parts of a response that is sent. */
interface Parts {
  readonly status: number;
  readonly statusText: string;
  readonly headers: HeaderList;
  readonly body: BodySource | null;
}

/** The parts that srvx's server takes from a response, instead of reading it as a web `Response`. */
interface NodeResponse extends Omit<Parts, "body"> {
  readonly body: PipedBody | ReadableStream<Uint8Array> | null;
}

/** The runtime's own `Response`, even if a server has replaced the global (@hono/node-server, srvx). */
const NativeResponse = nativeOf(globalThis.Response);

function nativeOf(current: typeof Response): typeof Response {
  const parent = Object.getPrototypeOf(current) as Partial<typeof Response>;
  return parent.prototype === undefined ? current : nativeOf(parent as typeof Response);
}

/**
 * A `Response` that makes its web objects only when other code reads them.
 *
 * The server under the handler calls `_toNodeResponse()`, and lets the body write itself. If other code has read
 * `headers` or `body` before, these are real web objects, and they are sent with the changes that the code has made.
 */
class LazyResponse {
  readonly #reply: UpstreamResponse;
  readonly #message: IncomingMessage | undefined;
  #headers: Headers | undefined;
  #real: Response | undefined;

  constructor(reply: UpstreamResponse, message: IncomingMessage | undefined) {
    this.#reply = reply;
    this.#message = message;
  }

  get status(): number {
    return this.#reply.status;
  }
  get statusText(): string {
    return this.#reply.statusText;
  }
  get ok(): boolean {
    return this.status >= 200 && this.status < 300;
  }
  get headers(): Headers {
    return (this.#headers ??= toHeaders(this.#reply.headers));
  }
  get type(): ResponseType {
    return "default";
  }
  get url(): string {
    return "";
  }
  get redirected(): boolean {
    return false;
  }
  get body(): ReadableStream<Uint8Array> | null {
    return this.#reply.body === null ? null : this.#response.body;
  }
  get bodyUsed(): boolean {
    return this.#real?.bodyUsed ?? false;
  }
  text(): Promise<string> {
    return this.#response.text();
  }
  json(): Promise<unknown> {
    return this.#response.json();
  }
  arrayBuffer(): Promise<ArrayBuffer> {
    return this.#response.arrayBuffer();
  }
  bytes(): Promise<Uint8Array> {
    return this.#response.bytes();
  }
  blob(): Promise<Blob> {
    return this.#response.blob();
  }
  formData(): Promise<FormData> {
    return this.#response.formData();
  }
  clone(): Response {
    const { body } = this.#response.clone();
    return new NativeResponse(body, this);
  }

  /** Returns the parts to send to srvx's server, also under h3. */
  _toNodeResponse(): NodeResponse {
    const { status, statusText, body } = this.#reply;
    const headers = this.#headers === undefined ? this.#reply.headers : toHeaderList(this.#headers);
    if (this.#real !== undefined) return { status, statusText, headers, body: this.#real.body };
    return { status, statusText, headers, body: body && new PipedBody(body, headers) };
  }

  /** Returns the parts to send, for `sendResponse`. */
  toParts(): Parts {
    const { status, statusText, body } = this.#reply;
    const headers = this.#headers === undefined ? this.#reply.headers : toHeaderList(this.#headers);
    if (this.#real === undefined) return { status, statusText, headers, body };
    const stream = this.#real.body;
    return { status, statusText, headers, body: stream && new StreamBody(stream) };
  }

  get #response(): Response {
    // The real response copies the fields; those of `this.headers` are sent.
    return (this.#real ??= new NativeResponse(
      toBodyInit(this.#reply.body, true, this.#message),
      this,
    ));
  }
}

Object.setPrototypeOf(LazyResponse.prototype, NativeResponse.prototype);

/**
 * Returns what a web `Response` is constructed from.
 * @param flush whether a stream begins with an empty chunk while no other has arrived
 * @param message Node's request, whose connection is closed if a stream fails
 */
function toBodyInit(
  body: BodySource | null,
  flush: boolean,
  message: IncomingMessage | undefined,
): BodyInit | null {
  if (body === null) return null;
  const bytes = body.error === undefined ? body.whole() : undefined;
  if (bytes !== undefined) return bytes as BodyInit;
  const onFail = message && ((): void => breakOffRequest(message));
  return body.stream({ flush, onFail });
}

/**
 * Returns the response for the server that has received the request: a lazy one if that server can send it.
 * @throws ProxyError if the body has failed already
 */
export function respond(reply: UpstreamResponse, incoming: Incoming): Response | Promise<Response> {
  assertIntact(reply);
  const message = messageOf(incoming);
  // If the global was replaced, other code may accept only instances of the class that replaced it.
  if (responseOf(incoming) !== undefined && globalThis.Response === NativeResponse) {
    return new LazyResponse(reply, message) as unknown as Response;
  }
  // Waiting one turn of the event loop, in which the rest is read, costs less than a stream.
  return isNearlyWhole(reply.body) ? buildLater(reply, message) : build(reply, message);
}

function assertIntact({ body }: UpstreamResponse): void {
  if (body?.error !== undefined) throw body.error;
}

/** Whether a small body has arrived in part: one read may not return all of it, and the rest follows with the next. */
function isNearlyWhole(body: BodySource | null): boolean {
  const { length = Infinity, buffered = 0 } = body ?? {};
  return buffered > 0 && length <= HIGH_WATER_MARK && length > buffered;
}

function build(reply: UpstreamResponse, message: IncomingMessage | undefined): Response {
  const { status, statusText, headers, body } = reply;
  // @hono/node-server writes a head together with a chunk as latin1, but a head alone as UTF-8.
  const flush = body?.buffered === 0 && hasObsText(headers);
  const response = new Response(toBodyInit(body, flush, message), {
    status,
    statusText,
    headers: toRecord(headers) ?? toHeaders(headers),
  });
  // @hono/node-server waits for the first chunk only if `body` has been read.
  if (flush) void response.body;
  return response;
}

async function buildLater(
  reply: UpstreamResponse,
  message: IncomingMessage | undefined,
): Promise<Response> {
  await new Promise((resolve) => setImmediate(resolve));
  assertIntact(reply);
  return build(reply, message);
}

/**
 * Sends a web `Response` as a response of Node's.
 * @throws what `writeHead` throws for fields that a hook has made invalid
 */
export function sendResponse(response: Response, res: ServerResponse): void {
  const { status, statusText, headers, body } =
    response instanceof LazyResponse
      ? response.toParts()
      : { ...headOf(response), body: response.body && new StreamBody(response.body) };
  if (res.destroyed || res.headersSent) return body?.cancel();
  try {
    // HTTP/2 has no reason phrase (RFC 9113 §8.3.2).
    if ("stream" in res) res.writeHead(status, headers);
    else res.writeHead(status, statusText, headers);
  } catch (error) {
    body?.cancel();
    throw error;
  }
  if (body === null) return void res.end();
  // Node drops the body of a response to HEAD: a stream would be read for nothing, an endless one for ever.
  if (res.req.method === "HEAD") {
    body.cancel();
    return void res.end();
  }
  new PipedBody(body, headers).pipe(res);
}

function headOf(response: Response): Pick<Parts, "status" | "statusText" | "headers"> {
  const { status, statusText } = response;
  return { status, statusText, headers: toHeaderList(response.headers) };
}
