import type { IncomingMessage, ServerResponse } from "node:http";
import { forward } from "../../src/pipeline/pipeline.ts";
import type { Proxy, Route, Runtime } from "../../src/proxy.ts";
import { makeSharedMembers, makeSharedParts } from "../sockets/sharedparts.ts";
import { attachTo, plugInto } from "./attach.ts";
import { explainNodeMessage, refuseMessages } from "./frameworkvalues.ts";
import { isBodyUsed } from "./internals/hono.ts";
import { createUpgradeListener } from "./handleupgrade.ts";
import { addFormerMethods } from "./httpproxy.ts";
import { readMessage, readRequest } from "./nodeincoming.ts";
import type { NodeProxy } from "./nodeproxy.ts";
import { respond, sendResponse } from "./noderesponse.ts";

// Fail when the module is loaded. Otherwise the first request would fail, with a message that does not name the cause. The
// check is in this module because every bundle uses its exports. Bundlers leave out a module whose exports are not used,
// because the package is marked as free of side effects.
if (globalThis.navigator?.userAgent === "Cloudflare-Workers") {
  throw new Error(
    'fetchway: this is the entry for Node; bundle with the condition "workerd" (wrangler sets it; ' +
      'with esbuild: conditions: ["workerd"])',
  );
}

/** The parts of a runtime that every entry for Node shares: all but the client that sends the requests. */
export const nodeParts: Omit<Runtime, "createTransport"> = {
  // Write `process.env.NODE_ENV` in full: bundlers replace this text with the mode that they build for.
  ...makeSharedParts(() => process.env.NODE_ENV),
  read: readRequest,
  respond,
  explainRequest: explainNodeMessage,
  upgradeHint:
    ": make a proxy with createProxy, and call proxy.attach(server), or give the server proxy.plugin",
  isBodyUsed,
};

function toError(thrown: unknown): Error {
  return new Error("fetchway: a hook threw a value that is not an Error", { cause: thrown });
}

/** Makes the members of a proxy on Node that `Proxy` does not have. */
export function addServerSide(route: Route, runtime: Runtime): Omit<NodeProxy, keyof Proxy> {
  const { target, plan } = route;
  const upgrade = createUpgradeListener(route);
  return addFormerMethods({
    ...makeSharedMembers(route, runtime),
    upgrade,
    attach: (server, attachOptions) => attachTo(server, { plan, upgrade }, attachOptions),
    plugin: (server, attachOptions) => plugInto(server, { plan, upgrade }, attachOptions),
    nodeHandler(request, response, next) {
      if (typeof (response as ServerResponse | undefined)?.writeHead !== "function") {
        throw refuseMessages(request);
      }
      // The messages of `node:http2` have the same members as those of `node:http`. Where HTTP/2 differs, `isHttp2` recognizes
      // its messages.
      const req = request as IncomingMessage;
      const res = response as ServerResponse;
      const fail = (thrown: unknown): void => {
        // Always pass an Error: Express calls the next handler for `undefined`, and takes some strings as commands.
        if (next) return next(thrown instanceof Error ? thrown : toError(thrown));
        // No other code reports the exception: `node:http` does not wait for its handler.
        // oxlint-disable-next-line no-console
        console.error(thrown);
        if (res.headersSent) res.destroy();
        else res.writeHead(500).end();
      };
      try {
        const context = { req, res };
        const incoming = readMessage(req, res, plan, context);
        forward(incoming, target, plan, context, respond).then((answer) => {
          // `catch` after `then` would make one more promise for each request.
          try {
            return sendResponse(answer, res)?.catch(fail);
          } catch (error) {
            return fail(error);
          }
        }, fail);
      } catch (error) {
        fail(error);
      }
    },
  });
}
