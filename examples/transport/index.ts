/**
 * Runs a proxy with a custom transport, which sends requests with the HTTP client of `node:http`.
 *
 *     node index.ts
 */
import { createServer, request as sendByNode } from "node:http";
import { createProxy } from "fetchway";
import { ProxyError, ResponseBody, type Sink, type Transport } from "fetchway/transport";

export const transport: Transport = {
  name: "node:http",
  capabilities: { decodes: [], host: true, unixSocket: false, tls: false },
  send: ({ upstream, method, path, host, headers, body, contentLength }, scope) =>
    new Promise((resolve, reject) => {
      const length = body?.length ?? contentLength;
      const framing =
        length === undefined
          ? ["Transfer-Encoding", "chunked"]
          : ["Content-Length", String(length)];
      const outgoing = sendByNode(upstream.origin, {
        method,
        path,
        headers: ["Host", host ?? upstream.host, ...headers, ...(body === null ? [] : framing)],
      });
      let response: ResponseBody | undefined;
      const fail = (error: ProxyError): void => {
        outgoing.destroy();
        // Unless the rest of the request body is read or cancelled, the server cannot read the client's next request.
        body?.cancel(error);
        reject(error);
        response?.fail(error);
      };
      scope.onAbort({ fail });
      outgoing.on("error", (cause) => fail(new ProxyError("connection_terminated", { cause })));
      outgoing.on("response", (message) => {
        const pause = (): void => void message.pause();
        const resume = (): void => void message.resume();
        const incoming = (response = new ResponseBody(scope, { pause, resume, cancel: fail }));
        message.on("data", (chunk: Buffer) => incoming.push(chunk));
        message.on("end", () => {
          incoming.end();
          if (outgoing.writableEnded) return;
          // The response is complete, so the upstream does not need the rest of the request.
          outgoing.destroy();
          body?.cancel();
        });
        message.on("error", (cause) => fail(new ProxyError("http_response_incomplete", { cause })));
        const { statusCode = 0, statusMessage = "", rawHeaders } = message;
        resolve({
          status: statusCode,
          statusText: statusMessage,
          headers: rawHeaders,
          body: incoming,
        });
      });
      const sink: Sink = {
        memory: "borrowed",
        write(chunk) {
          scope.touch();
          return outgoing.write(chunk);
        },
        onDrain: (callback) => void outgoing.once("drain", callback),
        end: () => void outgoing.end(),
        fail: (cause) => fail(new ProxyError("http_request_error", { cause })),
      };
      if (body === null) outgoing.end();
      else void body.pipeTo(sink);
    }),
};

if (import.meta.main) {
  const proxy = createProxy({ target: "http://127.0.0.1:4000", transport });
  createServer(proxy.nodeHandler).listen(3000);
}
