import type { ServerResponse } from "node:http";
import { toStream } from "../../src/body.ts";
import { toHeaderList, toHeaders } from "../../src/headers.ts";
import type { Incoming } from "../../src/incoming.ts";
import type { HeaderList, Reply } from "../../src/transport.ts";
import { drained } from "./drained.ts";
import { breakOff, flushHead, guardStream, hasObsText, NodeExchange } from "./body.ts";
import { toRecord } from "./headers.ts";
import { messageOf, responseOf } from "./incoming.ts";

/** What srvx's server asks a response for, instead of reading it as a web one. */
interface NodeResponse {
  status: number;
  statusText: string;
  headers: HeaderList;
  body: Uint8Array | ReadableStream<Uint8Array> | NodeExchange | null;
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
  readonly #reply: Reply;
  #headers: Headers | undefined;
  #real: Response | undefined;

  constructor(reply: Reply) {
    this.#reply = reply;
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
    if (body instanceof NodeExchange) body.sentHeaders = headers;
    return {
      status,
      statusText,
      headers,
      body: this.#real === undefined ? asNodeBody(body) : this.#real.body,
    };
  }

  get #response(): Response {
    return (this.#real ??= new NativeResponse(
      toBodyInit(this.#reply, true),
      // Its fields are copied: `headers` stays the one object that counts.
      this,
    ));
  }
}

Object.setPrototypeOf(LazyResponse.prototype, NativeResponse.prototype);

function asNodeBody(body: Reply["body"]): NodeResponse["body"] {
  return body === null || body instanceof Uint8Array || body instanceof NodeExchange
    ? body
    : toStream(body);
}

/**
 * @param flush whether the stream begins with an empty piece while nothing of the body is
 * here: srvx sends a response's head no earlier than the first piece of its body
 */
function toBodyInit({ body }: Reply, flush: boolean): BodyInit | null {
  if (body === null) return null;
  if (body instanceof NodeExchange) {
    const whole = body.error === undefined ? body.whole() : undefined;
    return (whole as BodyInit | undefined) ?? body.stream({ flush });
  }
  return body instanceof Uint8Array ? (body as BodyInit) : toStream(body);
}

/**
 * The response for the server that the request came from: lazy where it can be sent lazily.
 * @throws ProxyError if its body has failed by now
 */
export function respond(original: Reply, incoming: Incoming): Response | Promise<Response> {
  assertIntact(original);
  let reply = original;
  const message = messageOf(incoming);
  if (message !== undefined) {
    const { body } = original;
    if (body instanceof NodeExchange) body.request = message;
    else if (body instanceof ReadableStream) reply = { ...reply, body: guardStream(body, message) };
  }
  // Where the global is another class, only its own instances are responses to everyone.
  if (responseOf(incoming) !== undefined && globalThis.Response === NativeResponse) {
    return new LazyResponse(reply) as unknown as Response;
  }
  // A stream would cost more than the one turn of the loop in which the rest is read.
  const { body } = reply;
  return body instanceof NodeExchange && body.isNearlyWhole ? buildLater(reply) : build(reply);
}

function assertIntact({ body }: Reply): void {
  if (body instanceof NodeExchange && body.error !== undefined) throw body.error;
}

function build(reply: Reply): Response {
  const { status, statusText, headers, body } = reply;
  // @hono/node-server writes a head that comes with a chunk as latin1, and one that comes alone as UTF-8.
  const flush = body instanceof NodeExchange && body.isSilent && hasObsText(headers);
  const response = new Response(toBodyInit(reply, flush), {
    status,
    statusText,
    headers: toRecord(headers) ?? toHeaders(headers),
  });
  // It waits for a first chunk only of a response that somebody has looked at.
  if (flush) void response.body;
  return response;
}

async function buildLater(reply: Reply): Promise<Response> {
  await new Promise((resolve) => setImmediate(resolve));
  assertIntact(reply);
  return build(reply);
}

/**
 * Writes a response to Node's.
 * @throws what `writeHead` throws, for fields that a hook made unsendable
 */
export function sendResponse(response: Response, res: ServerResponse): void {
  const { status, statusText, headers, body } =
    response instanceof LazyResponse
      ? response._toNodeResponse()
      : { ...headOf(response), body: response.body };
  const letGo = (): void => {
    if (body instanceof NodeExchange) body.stop();
    else if (body instanceof ReadableStream) body.cancel().catch(() => {});
  };
  if (res.destroyed || res.headersSent) return letGo();
  try {
    // HTTP/2 has no reason phrase (RFC 9113 §8.3.2).
    if ("stream" in res) res.writeHead(status, headers);
    else res.writeHead(status, statusText, headers);
  } catch (error) {
    letGo();
    throw error;
  }
  if (body instanceof NodeExchange) body.pipe(res);
  else if (body instanceof ReadableStream) void pump(body, headers, res);
  else if (body === null) res.end();
  else res.end(body);
}

function headOf(response: Response): Pick<NodeResponse, "status" | "statusText" | "headers"> {
  const { status, statusText } = response;
  return { status, statusText, headers: toHeaderList(response.headers) };
}

async function pump(
  body: ReadableStream<Uint8Array>,
  headers: HeaderList,
  res: ServerResponse,
): Promise<void> {
  let reader: ReadableStreamDefaultReader<Uint8Array> | undefined;
  if (res.req.method === "HEAD") {
    // Node drops what is written: all of the stream would be read for nothing, one without an end for ever.
    body.cancel().catch(() => {});
    res.end();
    return;
  }
  const onClose = (): void => void reader?.cancel().catch(() => {});
  res.on("close", onClose);
  flushHead(res, headers);
  try {
    // Throws for one that somebody else is reading.
    reader = body.getReader();
    for (;;) {
      const { done, value } = await reader.read();
      if (done) break;
      if (!res.write(value)) await drained(res);
    }
    res.end();
  } catch {
    breakOff(res);
  } finally {
    res.off("close", onClose);
  }
}
