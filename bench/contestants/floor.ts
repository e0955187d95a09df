/**
 * The control: a `node:http` server that forwards each request by undici's `dispatch`, and writes the response directly to
 * `res`. It does none of the other work of a proxy. It removes only `Connection` and `Transfer-Encoding` from requests, ignores
 * disconnects, and has no deadlines.
 */
import type { IncomingMessage, ServerResponse } from "node:http";
import { type Dispatcher, Pool } from "undici";
import { answerFailure, isHttp2, start, target } from "./_start.ts";

const pool = new Pool(target, { allowH2: isHttp2 });
const ROOM = 65_536;

class Handler implements Dispatcher.DispatchHandler {
  readonly #res: ServerResponse;
  #length = -1;

  constructor(res: ServerResponse) {
    this.#res = res;
  }

  onRequestStart(controller: Dispatcher.DispatchController): void {
    this.#res.on("drain", () => controller.resume());
  }

  onResponseStart(
    controller: Dispatcher.DispatchController,
    status: number,
    parsed: Record<string, string | string[]>,
    statusText?: string,
  ): void {
    // With HTTP/2, undici provides no list of raw fields.
    if (isHttp2) return void this.#res.writeHead(status, parsed);
    const raw = controller.rawHeaders as Buffer[];
    const headers: string[] = [];
    for (let i = 0; i < raw.length; i += 2) {
      const name = (raw[i] as Buffer).toString("latin1");
      const value = (raw[i + 1] as Buffer).toString("latin1");
      if (name.length === 17 && name.toLowerCase() === "transfer-encoding") continue;
      if (name.length === 14 && name.toLowerCase() === "content-length")
        this.#length = Number(value);
      headers.push(name, value);
    }
    this.#res.writeHead(status, statusText ?? "", headers);
  }

  onResponseData(controller: Dispatcher.DispatchController, chunk: Buffer): void {
    if (chunk.length === this.#length) this.#res.end(chunk);
    else if (!this.#res.write(chunk)) controller.pause();
  }

  onResponseEnd(): void {
    if (!this.#res.writableEnded) this.#res.end();
  }

  onResponseError(): void {
    answerFailure(this.#res);
  }
}

function dispatch(
  req: IncomingMessage,
  res: ServerResponse,
  body: IncomingMessage | Buffer | null,
): void {
  const { method = "GET", url: path = "/", rawHeaders } = req;
  const headers: string[] = [];
  for (let i = 0; i < rawHeaders.length; i += 2) {
    const name = rawHeaders[i] as string;
    if (name.length === 10 && name.toLowerCase() === "connection") continue;
    if (name.length === 17 && name.toLowerCase() === "transfer-encoding") continue;
    headers.push(name, rawHeaders[i + 1] as string);
  }
  pool.dispatch({ path, method, headers, body }, new Handler(res));
}

await start("node", (req, res) => {
  if (req.method === "GET") dispatch(req, res, null);
  else if (Number(req.headers["content-length"]) <= ROOM) {
    // Wait for one turn of the event loop: a body in the same packet as the header section has then arrived, and needs no
    // stream.
    setImmediate(() => dispatch(req, res, req.complete ? (req.read() as Buffer) : req));
  } else dispatch(req, res, req);
});
