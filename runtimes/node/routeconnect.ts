/** Passes WebSockets over HTTP/2 (RFC 8441) to the app as ordinary requests. Loaded with the first WebSocket. */
import type { IncomingMessage, ServerResponse } from "node:http";
import type { Http2ServerRequest, Http2ServerResponse } from "node:http2";
import type { Server } from "node:net";
import type { ProxyError } from "../../src/error.ts";
import { getHeader, type HeaderList } from "../../src/fields/headers.ts";
import type { Plan } from "../../src/plan.ts";
import { toErrorResponse } from "../../src/response/errorresponse.ts";
import type { Listener } from "../../src/transport/scope.ts";
import { toHandshake } from "../../src/websocket/extendedconnect.ts";
import { ConnectStream } from "./connectstream.ts";
import { sendOnStream } from "./http2response.ts";
import { UnansweredUpgrade } from "./routeupgrade.ts";

/** Passes the request for a WebSocket to the app by the event `request`, converted to an HTTP/1.1 handshake. */
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
    // A refused client learns the supported version (RFC 6455 §4.2.2).
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
        client.unlisten(listener);
        detach();
        // Set the status, because the app may log it.
        res.statusCode = 200;
        client.switchTo(tunnel, true, options);
      },
      refuse() {
        client.unlisten(listener);
        client.beginResponse(response);
      },
      fail(error) {
        client.unlisten(listener);
        detach();
        sendError(error);
      },
    },
    plan.timeout,
  );
  const listener: Listener = {
    handleEvent() {
      upgrade.end();
      client.destroy();
    },
  };
  client.listen(listener);
  server.emit("request", req, res);
}

/**
 * Changes an extended CONNECT to a GET with the fields of an HTTP/1.1 handshake and an empty body. The bytes of the stream
 * belong to the tunnel, so the app can neither read nor pause them.
 * @throws ProxyError 400 if a field of the handshake is missing or malformed
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
 * Replaces the methods of a response that write, because Node cannot detach an HTTP/2 response from its stream.
 * @returns a function that makes the response discard all further writes
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
