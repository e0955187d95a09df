import type { IncomingMessage, ServerResponse } from "node:http";
import { type BodySource, HIGH_WATER_MARK } from "../../src/body/source.ts";
import { StreamBody } from "../../src/body/stream.ts";
import { toHeaderList, toHeaders } from "../../src/headers.ts";
import type { Incoming } from "../../src/incoming.ts";
import type { HeaderList, UpstreamResponse } from "../../src/transport.ts";
import { breakOffRequest, hasObsText, PipedBody } from "./body.ts";
import { toRecord } from "./headers.ts";
import { messageOf, responseOf } from "./incoming.ts";

/** What a response is sent from. */
interface Parts {
  readonly status: number;
  readonly statusText: string;
  readonly headers: HeaderList;
  readonly body: BodySource | null;
}

/** What srvx's server asks a response for, instead of reading it as a web one. */
interface NodeResponse extends Omit<Parts, "body"> {
  readonly body: PipedBody | ReadableStream<Uint8Array> | null;
}

/** The runtime's own `Response`, under whatever a server has put in its place (@hono/node-server, srvx). */
const NativeResponse = nativeOf(globalThis.Response);

function nativeOf(current: typeof Response): typeof Response {
  const parent = Object.getPrototypeOf(current) as Partial<typeof Response>;
  return parent.prototype === undefined ? current : nativeOf(parent as typeof Response);
}

/**
 * A `Response` that is not built until somebody looks at it.
 *
 * The server under the handler asks it for `_toNodeResponse()` and lets the
 * body write itself. Whoever touches `headers` or `body` before gets real ones,
 * and what became of them is what is sent.
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

  /** Asked for by srvx's server, under h3 too. */
  _toNodeResponse(): NodeResponse {
    const { status, statusText, body } = this.#reply;
    const headers = this.#headers === undefined ? this.#reply.headers : toHeaderList(this.#headers);
    if (this.#real !== undefined) return { status, statusText, headers, body: this.#real.body };
    return { status, statusText, headers, body: body && new PipedBody(body, headers) };
  }

  toParts(): Parts {
    const { status, statusText, body } = this.#reply;
    const headers = this.#headers === undefined ? this.#reply.headers : toHeaderList(this.#headers);
    if (this.#real === undefined) return { status, statusText, headers, body };
    const stream = this.#real.body;
    return { status, statusText, headers, body: stream && new StreamBody(stream) };
  }

  get #response(): Response {
    // Its fields are copied: `headers` stays the one object that counts.
    return (this.#real ??= new NativeResponse(
      toBodyInit(this.#reply.body, true, this.#message),
      this,
    ));
  }
}

Object.setPrototypeOf(LazyResponse.prototype, NativeResponse.prototype);

/**
 * What a web `Response` is made of.
 * @param flush whether a stream begins with an empty chunk while no other has arrived
 * @param message Node's request, whose connection ends where a stream breaks off
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
 * The response for the server that the request came from: lazy where it can be sent lazily.
 * @throws ProxyError if its body has failed by now
 */
export function respond(reply: UpstreamResponse, incoming: Incoming): Response | Promise<Response> {
  assertIntact(reply);
  const message = messageOf(incoming);
  // Where the global is another class, only its own instances are responses to everyone.
  if (responseOf(incoming) !== undefined && globalThis.Response === NativeResponse) {
    return new LazyResponse(reply, message) as unknown as Response;
  }
  // A stream would cost more than the one turn of the loop in which the rest is read.
  return isNearlyWhole(reply.body) ? buildLater(reply, message) : build(reply, message);
}

function assertIntact({ body }: UpstreamResponse): void {
  if (body?.error !== undefined) throw body.error;
}

/** Whether the rest of a body may arrive in a moment: one read takes no more than what is in the socket's buffer. */
function isNearlyWhole(body: BodySource | null): boolean {
  const { length = Infinity, buffered = 0 } = body ?? {};
  return buffered > 0 && length <= HIGH_WATER_MARK && length > buffered;
}

function build(reply: UpstreamResponse, message: IncomingMessage | undefined): Response {
  const { status, statusText, headers, body } = reply;
  // @hono/node-server writes a head that comes with a chunk as latin1, and one that comes alone as UTF-8.
  const flush = body?.buffered === 0 && hasObsText(headers);
  const response = new Response(toBodyInit(body, flush, message), {
    status,
    statusText,
    headers: toRecord(headers) ?? toHeaders(headers),
  });
  // It waits for a first chunk only of a response that somebody has looked at.
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
 * Writes a response to Node's.
 * @throws what `writeHead` throws, for fields that a hook made unsendable
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
  // Node drops what is written: all of a stream would be read for nothing, one without an end for ever.
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
