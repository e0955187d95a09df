/**
 * The option names of other proxy libraries, each with what to write here. docs/coming-from.md says more about each. They
 * are apart from the core's own few, because Workers would load them with every start.
 */
import { findFix, type ForeignNames } from "./foreign.ts";

const CHOOSE =
  "call the proxy for the requests that are its own: a route of the framework, or an `if`";
const POOL = "write `createProxy({ pool: { … } })`, or `transport: createTransport({ … })`";

const NAMES: ForeignNames = [
  [
    "secure rejectUnauthorized",
    "certificates are verified; the target `{ url, tls: { rejectUnauthorized: false } }` turns it off",
  ],
  ["ssl ca", "write the target as `{ url, tls: { ca, servername, … } }`"],
  ["auth", 'write `headers: { authorization: "Basic " + btoa("user:password") }`'],
  ["proxyTimeout", "it is called `timeout` here"],
  ["upgradeTimeout", "`timeout` holds for the answer to an upgrade, too"],
  [
    "hostRewrite autoRewrite protocolRewrite internalRewriteLocationHeader",
    "`locationRewrite` keeps redirects under the proxy; `true` is the default, a map replaces prefixes of URLs",
  ],
  ["upstream base", "pass it as `target`"],
  ["router getUpstream", "`target` may be a function of the request, also an async one"],
  ["rewrite preRewrite", "it is called `pathRewrite` here"],
  ["prefix", "it is called `stripPrefix` here"],
  ["rewritePrefix", "write `stripPrefix`, and the new prefix as the path of the target"],
  ["ignorePath", "write `onRequest: (draft) => { draft.path = … }`, which sets the whole path"],
  ["prependPath", "the path of the `target` goes in front; write a target without one"],
  ["queryString", "queries are forwarded as they came; `pathRewrite` gets the path with its query"],
  ["pathFilter routes httpMethods constraints config", CHOOSE],
  ["on configure plugins", "write `onRequest`, `onResponse`, `onError` and `onRequestEnd`"],
  [
    "bypass preHandler beforeHandler preValidation handler rewriteRequestHeaders",
    "write `onRequest`, which changes the request, or answers it with a Response",
  ],
  [
    "selfHandleResponse rewriteHeaders replyOptions",
    "write `onResponse`, which changes the response, or returns another",
  ],
  ["logger disableRequestLogging", "write `onRequestEnd`, and log what it tells"],
  ["forward", "write `mirror: { target }`"],
  ["retryMethods", "write `retry: { methods }`"],
  ["retriesCount", "write `retry: { attempts }`"],
  ["retryDelay", "write `retry: { delay }`"],
  ["maxRetriesOn503", "write `retry: { attempts, statusCodes: [503] }`"],
  ["balancedPoolOptions", "write `target: balance([…])`, from fetchway/upstreams"],
  ["undici requests request http globalAgent destroyAgent", POOL],
  ["fetchOptions", "write `followRedirects`, `signal`, or `onRequest` for other changes"],
  ["method body buffer", "change it in `onRequest`, or pass `new Request(request, { … })`"],
  ["localAddress", "it cannot be chosen; leave it out"],
  [
    "websocket wsUpstream wsClientOptions wsServerOptions wsHooks wsReconnect",
    "WebSockets are tunnelled without one (`upgrades`), to the same target; on Node, call `proxy.attach(server)`",
  ],
  ["rewriteWsOrigin", "write `headers: { origin }`; the upstream then cannot check it"],
  ["proxyPayloads contentTypesToEncode", "bodies are streamed as they are; leave it out"],
  ["contentType", 'write `headers: { "content-type": … }`'],
  ["Response", "the answer is a Response that the server can send; leave it out"],
  [
    "preserveHeaderKeyCase",
    "names of fields keep their case where the server can send it; leave it out",
  ],
  ["toProxy", "write `transport: createUndiciTransport(new ProxyAgent(…))`, of fetchway/undici"],
  ["ejectPlugins cacheURLs disableCache", "there is nothing to turn off here; leave it out"],
];

/** Explains what to write instead of an option of another library; undefined for any other name. */
export function explainOtherLibrary(name: string): string | undefined {
  return findFix(name, NAMES);
}
