import type { IncomingMessage, ServerResponse } from "node:http";
import type { Server } from "node:net";
import { awaitingContinue } from "./incomingbody.ts";

/** Returns whether a request of a server belongs to the proxy. */
export type Match = (req: IncomingMessage) => boolean;

/** For each server on which this module has listeners, the functions that match the proxy's requests. */
const servers: WeakMap<Server, Match[]> = new WeakMap();

/**
 * Asks the app's function whether a request belongs to the proxy. If the function throws, as with a URL that does not parse,
 * the answer is no: an exception in an event of the server would end the process.
 */
export function isMatch(match: Match, req: IncomingMessage): boolean {
  try {
    return match(req);
  } catch (thrown) {
    // No other code reports the exception.
    // oxlint-disable-next-line no-console
    console.error(thrown);
    return false;
  }
}

/**
 * Forwards `Expect: 100-continue` of a server's requests to the upstream, so that a client sends its body only if the upstream
 * asks for it (RFC 9110 §10.1.1). By default, Node itself immediately answers such a request with 100 (Continue).
 *
 * A client gets its 100 when its request's body is first read, whether the proxy reads it or another handler does. If the
 * response comes before that, there is no 100, and Node closes the connection after the response.
 *
 * A request that is not the proxy's is left to the other listeners for `checkContinue`, if the server has any.
 * @param match returns whether a request belongs to the proxy
 */
export function attachContinue(server: Server, match: Match): void {
  const known = servers.get(server);
  if (known !== undefined) return void (known.includes(match) || known.push(match));
  const matches = [match];
  servers.set(server, matches);
  server.on("checkContinue", (req: IncomingMessage, res: ServerResponse) => {
    const isOurs = matches.some((each) => isMatch(each, req));
    if (!isOurs && server.listenerCount("checkContinue") > 1) return;
    if (isOurs) awaitingContinue.add(req);
    onFirstRead(req, () => {
      awaitingContinue.delete(req);
      if (!res.headersSent) res.writeContinue();
    });
    server.emit("request", req, res);
  });
  server.on("checkExpectation", (req: IncomingMessage, res: ServerResponse) => {
    if (server.listenerCount("checkExpectation") > 1) return;
    // The value is case-insensitive (RFC 9110 §10.1.1), but Node compares it byte for byte over HTTP/2.
    if (/^100-continue$/i.test(req.headers.expect ?? "")) server.emit("checkContinue", req, res);
    else res.writeHead(417).end();
  });
}

/**
 * Calls back once, immediately before the first read of a request's body, whichever code reads it.
 *
 * - Rests on: a readable stream calls its method `_read` when it is read for the first time, in whichever way, and a property
 *   of the instance hides the method of the class. Node documents `_read` for code that implements streams, not for requests.
 * - Check: the request must have the method.
 * - Otherwise: the callback is called synchronously, as if the body were being read.
 * - Test: test/runtimes/node/attachcontinue.firstread.test.ts.
 */
export function onFirstRead(message: IncomingMessage, callback: () => void): void {
  if (!("_read" in message)) return callback();
  message._read = (size) => {
    Reflect.deleteProperty(message, "_read");
    callback();
    message._read(size);
  };
}

/** Removes what `attachContinue` has added for the same `match`. */
export function detachContinue(server: Server, match: (req: IncomingMessage) => boolean): void {
  const matches = servers.get(server) ?? [];
  const index = matches.indexOf(match);
  if (index >= 0) matches.splice(index, 1);
}
