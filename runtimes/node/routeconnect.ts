/** Passes WebSockets over HTTP/2 (RFC 8441) to the app as ordinary requests. Loaded with the first of them. */
import type { IncomingMessage, ServerResponse } from "node:http";
import type { Http2ServerRequest, Http2ServerResponse } from "node:http2";
import type { Server } from "node:net";
import type { ProxyError } from "../../src/error.ts";
import { getHeader, type HeaderList } from "../../src/fields/headers.ts";
import type { Plan } from "../../src/plan.ts";
import { toErrorResponse } from "../../src/response/errorresponse.ts";
import { toHandshake } from "../../src/websocket/extendedconnect.ts";
import { ConnectStream } from "./connectstream.ts";
import { sendOnStream } from "./http2response.ts";
import { UnansweredUpgrade } from "./routeupgrade.ts";

/** Passes a WebSocket to the app as a handshake over HTTP/1.1, as the server passes ordinary requests. */
export function routeConnect(
  server: Server,
  req: Http2ServerRequest,
  res: Http2ServerResponse,
  plan: Plan,
): void {
  const client = new ConnectStream(req.stream);
  if (!client.isWaiting) return client.destroy();
  const [message, response] = [req, res] as unknown as [IncomingMessage, ServerResponse];
  const sendError = (error: ProxyError, fields: HeaderList = []): void => {
    client.beginResponse(response);
    const { status, headers, body } = toErrorResponse(error, "GET");
    sendOnStream(res, status, [...headers, ...fields], body);
  };
  try {
    becomeHandshake(req);
  } catch (error) {
    // RFC 6455 §4.2.2.
    return sendError(error as ProxyError, ["Sec-WebSocket-Version", "13"]);
  }
  const detach = makeDetachable(response);
  const upgrade = new UnansweredUpgrade(
    message,
    response,
    "websocket",
    {
      switchTo({ tunnel, options }, fields) {
        client.accept(fields);
        client.unlisten();
        detach();
        // The app may log the status.
        res.statusCode = 200;
        client.switchTo(tunnel, true, options);
      },
      refuse() {
        client.unlisten();
        client.beginResponse(response);
      },
      fail(error) {
        client.unlisten();
        detach();
        sendError(error);
      },
    },
    plan.timeout,
  );
  client.listen({
    handleEvent() {
      upgrade.end();
      client.destroy();
    },
  });
  server.emit("request", req, res);
}

/**
 * Makes an extended CONNECT a GET with the fields of a handshake and without a body. The bytes of the stream belong to the
 * tunnel: the app can neither read nor pause them.
 * @throws ProxyError 400 for a field of the handshake that is missing or malformed
 */
function becomeHandshake(req: Http2ServerRequest): void {
  const { rawHeaders, headers } = req;
  rawHeaders.splice(0, rawHeaders.length, ...toHandshake(rawHeaders));
  for (const name of ["connection", "upgrade", "sec-websocket-key"]) {
    headers[name] = getHeader(rawHeaders, name);
  }
  Object.assign(req, { method: "GET" });
  req.removeAllListeners("pause").push(null);
}

/**
 * Makes a response whose writes can be dropped, because Node cannot detach it from its stream.
 * @returns a function after whose call what the app writes goes nowhere
 */
function makeDetachable(response: ServerResponse): () => void {
  let isDetached = false;
  for (const name of ["writeHead", "write", "end", "flushHeaders"] as const) {
    const method = response[name].bind(response) as (...args: unknown[]) => unknown;
    const own = (...args: unknown[]): unknown => {
      if (!isDetached) return method(...args);
      const callback = args.at(-1);
      if (typeof callback === "function") process.nextTick(callback);
      return name === "write" || response;
    };
    Object.assign(response, { [name]: own });
  }
  return () => (isDetached = true);
}
