/** The checks of the matrix of frameworks: a client and an upstream, which compare what the app forwards between them. */
import assert from "node:assert/strict";
import { once } from "node:events";
import {
  type ClientRequest,
  createServer,
  type IncomingMessage,
  request as sendRequest,
  type RequestOptions,
  type Server,
  type ServerResponse,
} from "node:http";
import { buffer, text } from "node:stream/consumers";
import { createGunzip, gzipSync } from "node:zlib";
import { WebSocket, WebSocketServer } from "ws";
import { listen } from "../helpers/serve.ts";
import { until, within } from "../helpers/wait.ts";

/** The path that each app forwards. */
const MOUNT = "/api";
/** The message of the exception that the app's target function throws for the path `/throw`. */
export const THROWN = "thrown by a hook";
/** The cell for a feature that the app does not have with its code. */
export const NOT_HERE = "–";
/** Parts of request targets that must be forwarded unchanged, by their name in the table. */
const PATHS: Readonly<Record<string, string>> = {
  escapes: "/a%2Fb%20c;d",
  "`//`": "/a//b",
  "`/` at the end": "/a/",
  queries: "/a?b=%20+c&d=%2f&e",
};
const GZIP = gzipSync("compressed by the upstream, and so never to be compressed again".repeat(20));
const UPLOAD = 5_000_000;

/** One request, as the upstream received it. */
interface Call {
  req: IncomingMessage;
  res: ServerResponse;
  /** The bytes of the body that have arrived. */
  received: number;
  /** Whether the body is complete: it has ended, but not by a lost connection. */
  isComplete: boolean;
  isClosed: boolean;
}

/** An upstream whose responses are chosen by the last segment of the path. */
export class Upstream {
  readonly calls: Call[] = [];
  readonly #server: Server = createServer((req, res) => this.#answer(req, res));
  readonly #sockets: WebSocketServer = new WebSocketServer({ server: this.#server });

  constructor() {
    this.#sockets.on("connection", (socket) =>
      socket.on("message", (data, isBinary) => socket.send(data, { binary: isBinary })),
    );
  }

  listen(): Promise<number> {
    return listen(this.#server);
  }

  /** Ends the server and all connections, so that a connection to it is refused. */
  async [Symbol.asyncDispose](): Promise<void> {
    if (!this.#server.listening) return;
    const closed = once(this.#server, "close");
    this.#server.close();
    this.#server.closeAllConnections();
    for (const socket of this.#sockets.clients) socket.terminate();
    await closed;
  }

  /** Waits for a request whose path or query contains `part`. */
  async call(part: string): Promise<Call> {
    const find = (): Call | undefined => this.calls.findLast(({ req }) => req.url?.includes(part));
    await until(() => find() !== undefined, `a request with ${part} at the upstream`);
    return find() as Call;
  }

  #answer(req: IncomingMessage, res: ServerResponse): void {
    const call: Call = { req, res, received: 0, isComplete: false, isClosed: false };
    this.calls.push(call);
    req.on("data", (chunk: Buffer) => (call.received += chunk.length));
    req.on("end", () => (call.isComplete = req.complete));
    req.on("error", () => {});
    res.on("close", () => (call.isClosed = !res.writableFinished));
    const path = req.url?.replace(/\?.*/, "") ?? "";
    const base = path.replace(/[^/]*$/, "");
    if (path.endsWith("/cookies")) {
      res.writeHead(200, { "set-cookie": ["a=1; Path=/", "b=2; Path=/"] }).end("x");
    } else if (path.endsWith("/unchanged")) {
      res.writeHead(304, { etag: '"v1"' }).end();
    } else if (path.endsWith("/redirect")) {
      res.writeHead(302, { location: `${base}login` }).end();
    } else if (path.endsWith("/gzip")) {
      const fields = { "content-type": "text/plain", "content-encoding": "gzip", etag: '"v1"' };
      res.writeHead(200, { ...fields, "content-length": GZIP.length }).end(GZIP);
    } else if (path.endsWith("/events")) {
      res.writeHead(200, { "content-type": "text/event-stream" }).write("data: 1\n\n");
    } else if (path.endsWith("/upload")) {
      req.on("end", () => res.end(String(call.received)));
    } else if (!path.endsWith("/hang")) {
      res.writeHead(200, { "content-type": "text/plain" }).end("x");
    }
  }
}

/** A running app, as a check sees it. */
export interface Running {
  readonly port: number;
  readonly upstream: Upstream;
  /** The path at the upstream to which the app forwards `/api`, without a slash at its end. */
  readonly base: string;
  /** Returns everything that the app has printed. */
  output(): string;
}

interface Answer {
  response: IncomingMessage;
  request: ClientRequest;
}

/** Begins a request. The caller ends it. */
function start({ port }: Running, path: string, options: RequestOptions = {}): ClientRequest {
  const request = sendRequest({ host: "127.0.0.1", port, path, agent: false, ...options });
  request.on("error", () => {});
  return request;
}

async function ask(app: Running, path: string, options?: RequestOptions): Promise<Answer> {
  const request = start(app, path, options);
  request.end();
  return { request, response: await answerTo(request) };
}

async function answerTo(request: ClientRequest): Promise<IncomingMessage> {
  const [response] = (await within(once(request, "response"), "a response")) as [IncomingMessage];
  response.on("error", () => {});
  return response;
}

async function fieldsAt(
  app: Running,
  path: string,
  options?: RequestOptions,
): Promise<Call["req"]> {
  const { response } = await ask(app, path, options);
  await within(text(response), "the body");
  assert.equal(response.statusCode, 200);
  return (await app.upstream.call(path.replace(MOUNT, ""))).req;
}

/**
 * Sends a request to which the upstream sends no response or, if `isBegun` is true, an endless one. Then disconnects, and
 * returns whether the upstream notices it.
 */
async function isAborted(app: Running, name: string, isBegun: boolean): Promise<boolean> {
  const request = start(app, `${MOUNT}/${name}?abort=${isBegun}`);
  request.end();
  if (isBegun) await within(once(await answerTo(request), "data"), "the first event");
  const call = await app.upstream.call(`${name}?abort=${isBegun}`);
  request.destroy();
  return until(() => call.isClosed, "the end of the request", 5000).then(
    () => true,
    () => false,
  );
}

/** A check resolves to "yes", or to a few words that describe the difference. It rejects if the feature does not work at all. */
export type Check = (app: Running) => Promise<string>;

/** The checks, by their title in the table. The last one ends the upstream. */
export const checks: Readonly<Record<string, Check>> = {
  async "compressed body"(app) {
    const { response } = await ask(app, `${MOUNT}/gzip`, {
      headers: { "accept-encoding": "gzip" },
    });
    const body = await within(buffer(response), "the body");
    const { headers } = response;
    if (!body.equals(GZIP)) return "compressed again";
    assert.equal(headers["content-encoding"], "gzip");
    if (headers["content-length"] !== String(GZIP.length)) return "without length";
    return headers.etag === '"v1"' ? "yes" : "other etag";
  },

  async cookies(app) {
    const { response } = await ask(app, `${MOUNT}/cookies`);
    response.resume();
    assert.deepEqual(response.headers["set-cookie"], ["a=1; Path=/", "b=2; Path=/"]);
    return "yes";
  },

  async "status 304"(app) {
    const { response } = await ask(app, `${MOUNT}/unchanged`, {
      headers: { "if-none-match": '"v1"' },
    });
    assert.equal(await within(text(response), "the end"), "");
    assert.equal(response.statusCode, 304);
    return response.headers.etag === '"v1"' ? "yes" : "without etag";
  },

  async redirect(app) {
    const { response } = await ask(app, `${MOUNT}/redirect`);
    response.resume();
    assert.equal(response.statusCode, 302);
    assert.equal(response.headers.location, `${MOUNT}/login`);
    return "yes";
  },

  async upload(app) {
    const request = start(app, `${MOUNT}/upload`, {
      method: "POST",
      headers: { "content-length": UPLOAD, "content-type": "application/octet-stream" },
    });
    const answered = answerTo(request);
    answered.catch(() => {});
    request.write(Buffer.alloc(100_000));
    const find = (): Call | undefined =>
      app.upstream.calls.find(({ req, received }) => req.url?.includes("/upload") && received > 0);
    const isStreamed = await until(() => find() !== undefined, "the first chunk", 8000).then(
      () => true,
      () => false,
    );
    request.end(Buffer.alloc(UPLOAD - 100_000));
    const response = await answered;
    const body = await within(text(response), "the body");
    if (response.statusCode !== 200) return `${response.statusCode}`;
    if (body !== String(UPLOAD)) return "cut";
    return isStreamed ? "yes" : "held to its end";
  },

  async "event stream"(app) {
    const request = start(app, `${MOUNT}/events?stream`, {
      headers: { accept: "text/event-stream", "accept-encoding": "gzip" },
    });
    request.end();
    const first = answerTo(request).then((response) => {
      const isCoded = response.headers["content-encoding"] === "gzip";
      // The first chunk may contain only the header of the compression format, and no byte of the event.
      const events = isCoded ? response.pipe(createGunzip().on("error", () => {})) : response;
      return once(events, "data");
    });
    const isHeld = await within(first, "the first event", 8000).then(
      () => false,
      () => true,
    );
    (await app.upstream.call("/events?stream")).res.end();
    request.destroy();
    return isHeld ? "held to its end" : "yes";
  },

  async abort(app) {
    const before = await isAborted(app, "hang", false);
    const after = await isAborted(app, "events", true);
    if (before && after) return "yes";
    return before || after ? `not ${before ? "after" : "before"} the headers` : "no";
  },

  async "thrown hook"(app) {
    const { response } = await ask(app, `${MOUNT}/throw`);
    response.resume();
    const isLogged = await until(() => app.output().includes(THROWN), "the exception", 2000).then(
      () => true,
      () => false,
    );
    if (response.statusCode === 200) return NOT_HERE;
    if (response.statusCode !== 500) return `${response.statusCode}`;
    return isLogged ? "yes" : "500, not logged";
  },

  async "client address"(app) {
    const { headers } = await fieldsAt(app, `${MOUNT}/address`, {
      headers: { "x-forwarded-for": "203.0.113.9", "x-forwarded-proto": "https" },
    });
    const address = String(headers["x-forwarded-for"] ?? "");
    if (address.includes("203.0.113.9")) return "forged";
    if (headers["x-forwarded-proto"] === "https") {
      const plain = await fieldsAt(app, `${MOUNT}/scheme`);
      return plain.headers["x-forwarded-proto"] === "https"
        ? "scheme always https"
        : "scheme forged";
    }
    return /^(?:::ffff:)?127\.0\.0\.1$|^::1$/.test(address) ? "yes" : "no";
  },

  async paths(app) {
    const changed: string[] = [];
    for (const [name, path] of Object.entries(PATHS)) {
      const before = app.upstream.calls.length;
      const { response } = await ask(app, MOUNT + path);
      response.resume();
      await within(once(response, "end"), "the end");
      const got = app.upstream.calls.slice(before).at(-1)?.req.url;
      if (got !== app.base + path) changed.push(name);
    }
    return changed.length === 0 ? "yes" : `not ${changed.join(", ")}`;
  },

  async WebSockets(app) {
    const socket = new WebSocket(`ws://127.0.0.1:${app.port}${MOUNT}/live`);
    const echoed = once(socket, "message");
    try {
      socket.on("open", () => socket.send("hello"));
      assert.equal(String((await within(echoed, "the message", 5000))[0]), "hello");
      return "yes";
    } catch {
      return NOT_HERE;
    } finally {
      socket.on("error", () => {}).terminate();
    }
  },

  async "dead upstream"(app) {
    await app.upstream[Symbol.asyncDispose]();
    const { response } = await ask(app, `${MOUNT}/dead`);
    response.resume();
    return response.statusCode === 502 ? "yes" : String(response.statusCode);
  },
};
