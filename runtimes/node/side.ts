import type { IncomingMessage, ServerResponse } from "node:http";
import { bodyWasRead } from "../../src/request/incoming.ts";
import type { BodySource } from "../../src/body/source.ts";
import { StreamBody } from "../../src/body/stream.ts";
import { contentLengthOf, isHttp2 } from "./message.ts";
import { IncomingBody, resumeAfter } from "./upload.ts";

/** What servers show of themselves on their requests and contexts. */
interface NodePair {
  req?: IncomingMessage;
  res?: ServerResponse;
  /** srvx: a limit that only its own body stream applies. */
  maxRequestBodySize?: number;
}

/** Node's own request and response under a web `Request`. */
export interface NodeSide {
  readonly req: IncomingMessage;
  /** The response to write to, where the server takes a body that writes itself (srvx). */
  readonly res: ServerResponse | undefined;
  /** Whether the body may be taken from `req`, past the `Request`. */
  readonly ownBody: boolean;
  /** Whether it is known that nobody has used the body of the `Request`. */
  readonly isFresh: boolean;
}

/** Finds Node's request under a web one: srvx and h3 show it, @hono/node-server keeps it by a symbol. */
export function nodeSideOf(request: Request): NodeSide | undefined {
  const pair = (request as { runtime?: { node?: NodePair } }).runtime?.node;
  // Servers do not document this: only what looks like a message of Node's is taken for one.
  if (pair?.req?.rawHeaders !== undefined) {
    const ownBody = pair.maxRequestBodySize === undefined;
    return { req: pair.req, res: pair.res, ownBody, isFresh: false };
  }
  let req: IncomingMessage | undefined;
  let ownBody = true;
  for (const symbol of Object.getOwnPropertySymbols(request)) {
    if (symbol.description === "incomingKey") {
      req = (request as unknown as Record<symbol, IncomingMessage>)[symbol];
    } else if (symbol.description === "requestCache") ownBody = false;
  }
  return req?.rawHeaders && { req, res: undefined, ownBody, isFresh: ownBody };
}

/**
 * The body of a web request, from Node's request where nobody else has taken it.
 * @throws TypeError if other code has read from it, but not through the web request: the rest would look whole
 */
export function bodyOf(
  request: Request,
  { req, res, ownBody, isFresh }: NodeSide,
): BodySource | null {
  if (request.bodyUsed) throw bodyWasRead();
  const wasRead = req.readableDidRead;
  // Where other code listens already, a stream of srvx's listens too before a chunk has come. Hono's is made later.
  if (!wasRead && ownBody && (isFresh || req.readableFlowing === null))
    return new IncomingBody(req);
  const before = req.listeners("data");
  const { body } = request;
  const added = req.listeners("data").filter((listener) => !before.includes(listener));
  if (res !== undefined) {
    resumeAfter(res, req, () => {
      // A stream that nobody reads takes a little, and pauses.
      if (body?.locked) return;
      for (const listener of added) req.off("data", listener as (chunk: unknown) => void);
    });
  }
  // A stream that the server has made only now listens from now on.
  if (wasRead && (isFresh || added.length > 0)) throw alreadyRead();
  return body && new StreamBody(body, contentLengthOf(req));
}

export function alreadyRead(): TypeError {
  return new TypeError(
    "fetchway: the request's body has already been read; put the proxy before body parsers such as express.json()",
  );
}

/**
 * The body of a web request over HTTP/2, past its web stream: that ends as a whole body does where the client resets
 * the HTTP/2 stream with NO_ERROR.
 */
export function http2BodyOf(
  request: Request,
  side: NodeSide | undefined,
): BodySource | null | undefined {
  const { method } = request;
  if (side === undefined || !isHttp2(side.req)) return undefined;
  if (method === "GET" || method === "HEAD" || side.req.stream.endAfterHeaders) return null;
  return bodyOf(request, side);
}
