/** The method `explain` of a proxy: it shows what a request would become, without sending it. */
import { compose, checkInterceptor, limitBody } from "../exchange/interceptors.ts";
import { chooseProtocol } from "../fields/protocols.ts";
import { getHeader } from "../fields/headers.ts";
import { forward } from "../pipeline/pipeline.ts";
import { assertHead, writeHeadEnd } from "../http1/attempt.ts";
import type { Context } from "../options/forwardingoptions.ts";
import type { RequestEnd } from "../options/observationoptions.ts";
import { compile, compileRewrite, type Plan } from "../plan.ts";
import type { ExplainedField, Explanation, Route, Runtime } from "../proxy.ts";
import type { Incoming } from "../request/incoming.ts";
import { toUpstreamRequest } from "../request/outgoing.ts";
import { hasEffect } from "../request/upgrade.ts";
import { joinTarget } from "../target/target.ts";
import type { UpstreamRequest } from "../transport/message.ts";
import type { Lease, Send } from "../transport/scope.ts";
import { explainFields, type MakeFields } from "./decidingoptions.ts";

/**
 * Explains what a request would become. The request passes the steps that may change it on its way to the upstream, including
 * `onRequest` and interceptors. The function `capture` gets the request in place of the transport.
 */
export async function explainRequest(
  { target, plan, pool }: Route,
  runtime: Runtime,
  request: Request,
  context: Context,
): Promise<Explanation> {
  const incoming = runtime.read(request, context, plan);
  takeUpgrade(incoming, plan);
  let captured: UpstreamRequest | undefined;
  let lease: Lease | undefined;
  let end: RequestEnd | undefined;
  const capture: Send = async (upstreamRequest, scope) => {
    upstreamRequest.body?.cancel();
    scope.end();
    if (hasOwnClient(upstreamRequest, plan)) assertHead(upstreamRequest);
    captured = upstreamRequest;
    ({ lease } = scope);
    return { status: 200, statusText: "", headers: [], body: null };
  };
  const explained: Plan = {
    ...plan,
    send: composeSteps(plan, capture),
    options: withoutEffects(plan, (event) => void (end = event)),
    mirror: undefined,
    tracing: undefined,
    log: undefined,
  };
  const response = await forward(incoming, target, explained, context, runtime.respond);
  if (captured === undefined) {
    return { request: undefined, response, error: end?.error, path: [], fields: [], dropped: [] };
  }
  void response.body?.cancel();
  const hooks = nameHooks(plan);
  const address = plan.clientAddress?.(request, context) ?? incoming.address;
  const isTrusted = plan.trusts?.(incoming.address ?? address) ?? false;
  const { upstream } = captured;
  const { transport: _, fetch: __, mirror: ___, wait: ____, ...options } = plan.options;
  const build = (changed: Plan["options"]): UpstreamRequest => {
    const rules = compile({ ...options, ...changed }, () => plan.transport);
    return toUpstreamRequest(incoming, upstream, "/", rules, context);
  };
  const make: MakeFields = (changed) => build({ startTrace: false, ...changed }).headers;
  const unhooked = build({});
  lease?.cut(unhooked);
  const facts = { options, isTrusted, hooks, unhooked: unhooked.headers };
  const { fields, dropped } = explainFields(incoming.headers, captured.headers, make, facts);
  const sent = [
    explainHost(captured, plan, hooks),
    ...fields,
    ...(hasOwnClient(captured, plan) ? explainFraming(captured, pool?.keepAlive !== false) : []),
  ];
  return {
    request: captured,
    response: undefined,
    error: undefined,
    path: await explainPath(incoming, captured, plan, hooks),
    fields: sent,
    // A field that the proxy writes itself, such as Host or Upgrade, does not count as dropped if it has the client's value.
    dropped: dropped.filter((field) => !sent.some((each) => isSameField(each, field))),
  };
}

/**
 * Sets `incoming.upgrade` for a request that asks for an upgrade. Servers do so when they hand the connection over, which does
 * not happen for an explanation; without `incoming.upgrade`, the answer would be 501.
 */
function takeUpgrade(incoming: Incoming, { upgrades }: Plan): void {
  const offered = getHeader(incoming.headers, "upgrade");
  if (offered === undefined || incoming.upgrade !== undefined || !hasEffect(incoming)) return;
  Object.defineProperty(incoming, "upgrade", { value: chooseProtocol(offered, upgrades) });
}

/** Composes the interceptors and the body limit, without the steps that could send a request again. */
function composeSteps({ options }: Plan, send: Send): Send {
  const { interceptors: { request = [], attempt = [] } = {}, bodyLimit } = options;
  return compose(
    [
      ...request.map(checkInterceptor),
      ...(bodyLimit === undefined ? [] : [limitBody(bodyLimit)]),
      ...attempt.map(checkInterceptor),
    ],
    send,
  );
}

/**
 * Returns the options without `onResponse`, and with another `onRequestEnd`: these two hooks of the app must not be called
 * for a request that is only explained.
 */
function withoutEffects(
  { options }: Plan,
  onRequestEnd: (event: RequestEnd) => void,
): Plan["options"] {
  const { onResponse: _, ...kept } = options;
  return { ...kept, onRequestEnd };
}

/** Whether Fetchway's own HTTP client sends the request, and so writes the message framing. */
function hasOwnClient({ upstream }: UpstreamRequest, { options }: Plan): boolean {
  return (
    upstream.app === undefined && options.transport === undefined && options.fetch === undefined
  );
}

function nameHooks({ options: { onRequest, interceptors = {} } }: Plan): string[] {
  const { request = [], attempt = [] } = interceptors;
  return [
    ...(onRequest === undefined ? [] : ["onRequest"]),
    ...(request.length + attempt.length === 0 ? [] : ["interceptors"]),
  ];
}

/** Returns the steps that have changed the client's path into the path of the upstream request. */
async function explainPath(
  { path: received }: Incoming,
  { upstream, path: sent, method }: UpstreamRequest,
  { options }: Plan,
  hooks: readonly string[],
): Promise<string[]> {
  const { stripPrefix, pathRewrite } = options;
  const steps: string[] = [];
  const stripped = (await compileRewrite({ stripPrefix })?.(received, missing)) ?? received;
  if (stripped !== received) steps.push("stripPrefix");
  // A function may have side effects, so it is not called again.
  if (typeof pathRewrite === "function") return [...steps, "pathRewrite"];
  const rewritten = (await compileRewrite({ pathRewrite })?.(stripped, missing)) ?? stripped;
  if (rewritten !== stripped) steps.push("pathRewrite");
  const joined = joinTarget(upstream, rewritten, method);
  if (joined !== rewritten) steps.push("the target's path or query in front");
  if (joined !== sent) steps.push(hooks.join(" or "));
  return steps;
}

function isSameField(one: ExplainedField, other: ExplainedField): boolean {
  return `${one.name}:${one.value}`.toLowerCase() === `${other.name}:${other.value}`.toLowerCase();
}

function missing(): never {
  throw new Error("a map of patterns does not read the request");
}

function explainHost(
  { host, upstream }: UpstreamRequest,
  { options, keepHost }: Plan,
  hooks: readonly string[],
): ExplainedField {
  const row = (reason: string): ExplainedField => ({
    name: "Host",
    value: host ?? upstream.host,
    reason,
  });
  if (host === undefined || host === upstream.host) {
    return row("the target's (changeOrigin, RFC 9110 §7.2)");
  }
  if (host === options.host) return row("set (host)");
  return row(keepHost ? "the client's (changeOrigin: false)" : `set (${hooks.join(" or ")})`);
}

const FRAMING_REASONS: Readonly<Record<string, string>> = {
  "content-length": "the framing follows the body (RFC 9112 §6.3)",
  "transfer-encoding": "the framing follows the body (RFC 9112 §6.3)",
  connection: "about the connection to the upstream (RFC 9110 §7.6.1)",
  upgrade: "tunnelled (upgrades, RFC 9110 §7.8)",
  te: "the client accepts trailer fields (RFC 9110 §10.1.4)",
  trailer: "the client announces trailer fields (RFC 9110 §6.6.2)",
};

/** Explains the fields that Fetchway's own HTTP client writes. */
function explainFraming(request: UpstreamRequest, keepAlive: boolean): ExplainedField[] {
  const length = request.body === null ? 0 : request.contentLength;
  const lines = writeHeadEnd(request.method, length, keepAlive, request).split("\r\n");
  return lines.flatMap((line) => {
    const [name = "", value = ""] = line.split(": ", 2);
    const reason = FRAMING_REASONS[name.toLowerCase()] ?? "unknown";
    return name === "" ? [] : [{ name, value, reason }];
  });
}
