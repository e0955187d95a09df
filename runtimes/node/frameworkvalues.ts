/**
 * Explains what to pass instead of the value that a framework has passed to a handler, or that an app has taken for a
 * server.
 */
import { isPromise } from "../../src/misuse.ts";
import { findRequest, isRequest } from "../../src/proxy.ts";

/** Any value. This module looks for members that the values of several frameworks have. */
type Passed = Readonly<Record<string, unknown>> | null | undefined;

/**
 * Returns advice for an app that has passed a request of `node:http` to the proxy; undefined for any other value.
 * @param passed what a framework has passed to its handler
 */
export function explainNodeMessage(passed: unknown): string | undefined {
  const { req, raw, node } = (passed ?? {}) as Record<string, Passed>;
  const messages = [passed, req, raw, node?.["req"]] as Passed[];
  return messages.some((message) => message?.["httpVersion"] !== undefined)
    ? "for a request of node:http, Express or Fastify use createProxy({ target }).nodeHandler(req, res)"
    : undefined;
}

/** Returns the error for arguments of `nodeHandler` that are not a request and a response of Node. */
export function refuseMessages(passed: unknown): TypeError {
  const { res, raw } = (passed ?? {}) as Record<string, Passed>;
  const found = isRequest(passed) ? "pass the request" : findRequest(passed);
  const fix =
    found !== undefined
      ? `; for a web Request, call proxy.fetch: ${found}`
      : res?.["writeHead"] !== undefined
        ? "; in Koa, pass ctx.req and ctx.res"
        : raw !== undefined
          ? "; in Fastify, call reply.hijack(), and pass request.raw and reply.raw"
          : "";
  return new TypeError(`fetchway: nodeHandler(req, res) takes messages of node:http${fix}`);
}

/** Whether a value is a server of Node. An app of Express or Koa also emits events, but does not listen itself. */
export function isServer(value: unknown): boolean {
  const server = value as Passed;
  return typeof server?.["listenerCount"] === "function" && server["listening"] !== undefined;
}

/** Returns the error for a value that was passed to `attach` and is not a server. */
export function refuseServer(passed: unknown): TypeError {
  return new TypeError(
    `fetchway: attach(server) takes a server of node:http, or what \`serve\` of srvx, h3 or Hono returned: ${explainServer(passed)}`,
  );
}

function explainServer(passed: unknown): string {
  const app = (passed ?? {}) as Record<string, unknown>;
  const member = ["server", "httpServer"].find((name) => isServer(app[name]));
  if (member !== undefined) return `pass its \`${member}\``;
  if (typeof app["getHttpServer"] === "function") return "pass app.getHttpServer()";
  if (typeof app["fetch"] === "function") return "pass serve(app)";
  if (typeof app["listen"] === "function") return "pass app.listen(3000)";
  // Checked last: an app of Fastify, which has other advice above, is a promise as well.
  if (isPromise(passed)) return "await the promise";
  return "app.server of Fastify, app.listen() of Express";
}
