/**
 * The option names of other proxy libraries, each with what to write instead. docs/coming-from.md says more about each name.
 * The names are not in foreign.ts, so that Workers do not load them.
 */
import { findFix, type ForeignNames } from "./foreign.ts";

const CHOOSE = "call the proxy for its own requests only, as a route of the framework does";
const STREAMED = "bodies are streamed as they are; leave it out";
const POOL = "write `createProxy({ pool: { … } })`, or `transport: createTransport({ … })`";

const NAMES: ForeignNames = [
  [
    "secure rejectUnauthorized",
    "certificates are verified; the target `{ url, tls: { rejectUnauthorized: false } }` turns that off",
  ],
  ["ssl ca", "write the target as `{ url, tls: { ca, servername, … } }`"],
  ["auth", 'write `headers: { authorization: "Basic " + btoa("user:password") }`'],
  ["proxyTimeout", "it is called `timeout` here"],
  ["upgradeTimeout", "`timeout` also limits the wait for the response to an upgrade; leave it out"],
  [
    "hostRewrite autoRewrite protocolRewrite internalRewriteLocationHeader",
    "`locationRewrite` keeps redirects under the proxy; `true` is the default, a map replaces prefixes of URLs",
  ],
  ["upstream base url targets", "pass it as `target`"],
  ["router getUpstream", "`target` may be a function of the request, also an async one"],
  ["rewrite preRewrite", "it is called `pathRewrite` here"],
  ["prefix", "it is called `stripPrefix` here"],
  ["rewritePrefix", "write `stripPrefix`, and the new prefix as the path of the target"],
  ["https port", "write them in the URL of the `target`"],
  ["memoizeHost", "a function as `target` is called for each request; leave it out"],
  ["preserveHostHdr", "write `changeOrigin: false`"],
  [
    "proxyReqPathResolver forwardPath forwardPathAsync",
    "write `pathRewrite`, which may be a function",
  ],
  ["ignorePath", "write `onRequest: (draft) => { draft.path = … }`, which sets the whole path"],
  ["prependPath", "the path of the `target` is always prepended; write a target without a path"],
  ["queryString", "queries are forwarded unchanged; `pathRewrite` gets the path with its query"],
  ["pathFilter filter routes httpMethods constraints config", CHOOSE],
  ["on configure plugins", "write `onRequest`, `onResponse`, `onError` and `onRequestEnd`"],
  [
    "onProxyReq onProxyReqWs bypass preHandler beforeHandler preValidation handler rewriteRequestHeaders decorateRequest proxyReqOptDecorator proxyReqBodyDecorator",
    "write `onRequest`, which changes the request, or responds with its own Response",
  ],
  [
    "onProxyRes selfHandleResponse rewriteHeaders replyOptions userResHeaderDecorator skipToNextHandlerFilter",
    "write `onResponse`, which changes the response, or returns another",
  ],
  [
    "userResDecorator intercept",
    "write `interceptors: { request: [transformText(…)] }`, with transformText of fetchway/bodies",
  ],
  ["proxyErrorHandler", "write `onError`"],
  [
    "preserveReqSession",
    "hooks see no session; set `req.headers` in middleware in front, and leave it out",
  ],
  ["limit", "it is called `bodyLimit` here, in bytes"],
  ["sendProxyRequest", "write a `transport`, or a `fetch`"],
  [
    "logger logLevel logProvider disableRequestLogging",
    "write `onRequestEnd`, and log what it reports",
  ],
  ["forward", "write `mirror: mirrorTo(url)`, from fetchway/mirror"],
  ["retryMethods", "write `retry: { methods }`"],
  ["retriesCount retries", "write `retry: { attempts }`"],
  ["retryDelay", "write `retry: { delay }`"],
  ["maxRetriesOn503", "write `retry: { attempts, statusCodes: [503] }`"],
  [
    "balancedPoolOptions upstreams balance healthCheck",
    "write `target: balance([…], { … })`, from fetchway/upstreams",
  ],
  ["onOpen onClose", "write `onResponse` and `onRequestEnd`; the status of a tunnel is 101"],
  ["cors", "let the upstream answer it, or see docs/recipes.md; leave it out"],
  ["undici requests request http globalAgent destroyAgent", POOL],
  ["fetchOptions", "write `followRedirects`, `signal`, or `onRequest` for other changes"],
  ["method body", "change it in `onRequest`, or pass `new Request(request, { … })`"],
  ["buffer", "put the proxy before body parsers, or pass `new Request(request, { body })`"],
  ["raw", "pass `c.req.raw` as the first argument"],
  ["cache integrity mode referrerPolicy window", "it is for browsers; leave it out"],
  ["credentials", "cookies are fields like others; leave it out"],
  ["duplex", STREAMED],
  ["keepalive", "it is for browsers; connections are kept (`pool: { keepAlive }`)"],
  ["referrer", "write `headers: { referer }`"],
  ["propagateAbortError", "a client that disconnects aborts the upstream request; leave it out"],
  ["strictConnectionProcessing", "fields that `Connection` names are always dropped; leave it out"],
  [
    "dispatcher",
    "write `transport: createUndiciTransport(dispatcher)`, of fetchway/undici, on Node",
  ],
  ["localAddress", "it cannot be chosen; leave it out"],
  [
    "websocket wsUpstream wsClientOptions wsServerOptions wsHooks wsReconnect",
    "WebSockets are tunnelled by default (`upgrades`), to the same target; on Node, call `proxy.attach(server)`",
  ],
  ["rewriteWsOrigin", "write `headers: { origin }`; the upstream then cannot check it"],
  ["proxyPayloads contentTypesToEncode parseReqBody reqAsBuffer reqBodyEncoding", STREAMED],
  ["contentType", 'write `headers: { "content-type": … }`'],
  ["Response", "the answer is a Response that the server can send; leave it out"],
  [
    "preserveHeaderKeyCase",
    "names of fields keep their case on Node, unless other code reads the fields; leave it out",
  ],
  ["toProxy", "write `transport: createUndiciTransport(new ProxyAgent(…))`, of fetchway/undici"],
  ["rewriteCookieDomain", 'write `cookieDomainRewrite: ""`, which removes the domain'],
  ["rewriteCookiePath", 'write `cookiePathRewrite`, such as `{ "/base": "/" }`'],
  ["xForwardedHeaders", "it is called `xfwd` here, and on by default"],
  ["ejectPlugins", "there are no plugins to turn off; leave it out"],
  ["cacheURLs disableCache", "a target that is a string is parsed once; leave it out"],
];

/** Explains what to write instead of an option of another library; undefined for any other name. */
export function explainOtherLibrary(name: string): string | undefined {
  return findFix(name, NAMES);
}
