/**
 * Shows what a request would become, without sending it: `fetchway … --inspect "GET http://shop.example/api/x"`.
 *
 * The request passes the server and the proxy of its route as any other; an interceptor takes it before it is sent.
 */
import { connect } from "node:net";
import { bufferCodec } from "../../runtimes/sockets/buffercodec.ts";
import { assertHead, writeHead, writeHeadEnd } from "../../src/http1/attempt.ts";
import type { RequestEnd } from "../../src/options/observationoptions.ts";
import { compile, type Plan } from "../../src/plan.ts";
import { joinTarget, pathOf } from "../../src/target/target.ts";
import type { UpstreamRequest } from "../../src/transport/message.ts";
import type { Interceptor, Transport } from "../../src/transport/port.ts";
import type { RouteSettings, Settings } from "../config/settings.ts";
import { nameAddress, nameUpstreams, type RouteOptions } from "../flags/severalupstreams.ts";
import { diagnoseFailure } from "../log/causes.ts";
import { listen } from "../serve/listen.ts";
import { Router } from "../serve/routes.ts";
import { explainFields, type FieldRow } from "./explainfields.ts";
import { type InspectedRequest, writeInspected } from "./inspectedrequest.ts";

/** A request that would have been sent. */
export interface Captured {
  readonly route: RouteSettings;
  readonly request: UpstreamRequest;
}

/** How a request ended. */
export interface Outcome {
  /** What would have been sent; undefined where the proxy, the command or a hook responds itself. */
  readonly captured: Captured | undefined;
  /** The response that the server sent: the one that the client would get, if nothing was captured. */
  readonly answer: string;
  readonly error: unknown;
}

/** The client's address. */
const CLIENT = "127.0.0.1";

/** Sends a request to the routes, and captures it before it would be sent to an upstream. */
export async function capture(inspected: InspectedRequest, settings: Settings): Promise<Outcome> {
  let captured: Captured | undefined;
  let end: RequestEnd | undefined;
  const onRequestEnd = (event: RequestEnd): void => void (end = event);
  const prepare = (options: RouteOptions): RouteOptions => {
    const route = settings.routes.find((each) => each.options === options);
    const take: Interceptor = () => (request) => {
      if (route !== undefined) captured = { route, request };
      request.body?.cancel();
      return Promise.resolve({ status: 200, statusText: "", headers: [], body: null });
    };
    const { interceptors = {} } = options;
    const attempt = [...(interceptors.attempt ?? []), take];
    // Checks and lookups of names would send something.
    const { check: _, resolve: __, ...balance } = options.balance ?? {};
    const quiet = options.balance === undefined ? {} : { balance };
    return { ...options, ...quiet, interceptors: { ...interceptors, attempt }, onRequestEnd };
  };
  const router = new Router(settings.routes, prepare);
  const { websocket } = router;
  const front = await listen(router.answer, { port: 0, host: CLIENT, websocket });
  router.attach(front.server, front.admitUpgrade);
  try {
    const port = Number(new URL(front.server.url ?? "").port);
    const answer = await sendInspected(
      port,
      writeInspected(inspected),
      () => captured !== undefined,
    );
    return { captured, answer, error: end?.error };
  } finally {
    router.destroy();
    await front.server.close(true);
  }
}

/** Sends bytes to the server, and returns its answer, or what there is of it when `isDone` is true. */
function sendInspected(port: number, bytes: Buffer, isDone: () => boolean): Promise<string> {
  return new Promise((resolve, reject) => {
    let answer = "";
    const socket = connect(port, CLIENT, () => socket.write(bytes));
    const finish = (): void => {
      socket.destroy();
      resolve(answer);
    };
    socket.on("data", (data: Buffer) => {
      answer += data.toString("latin1");
      if (isDone() || isAnswerComplete(answer)) finish();
    });
    socket.on("end", finish).on("error", reject);
  });
}

/** Whether an answer is complete: errors have a length, and other answers are not looked at. */
function isAnswerComplete(answer: string): boolean {
  const end = answer.indexOf("\r\n\r\n");
  if (end < 0) return false;
  const length = /^content-length: *(\d+)/im.exec(answer.slice(0, end))?.[1];
  if (length !== undefined) return answer.length >= end + 4 + Number(length);
  return !/^transfer-encoding:/im.test(answer.slice(0, end)) || answer.endsWith("0\r\n\r\n");
}

/** Renders what a request becomes, field by field, each with the reason. */
export async function renderInspection(
  inspected: InspectedRequest,
  outcome: Outcome,
): Promise<string> {
  const { captured, answer, error } = outcome;
  const title = `${inspected.method} ${inspected.path} from a client at ${CLIENT}; nothing is sent`;
  if (captured === undefined) {
    const [, status = "", body = ""] = /^HTTP\/1\.1 (\d+)[^]*?\r\n\r\n([^]*)$/.exec(answer) ?? [];
    // A short body without a length is one chunk.
    const text = body.replace(/^[\da-f]+\r\n([^]*)\r\n0\r\n\r\n$/i, "$1").trim();
    const cause = error === undefined ? undefined : diagnoseFailure(error, undefined).cause;
    const reason = cause ?? (text === "" ? "the server refuses it before it has a route" : text);
    return `${title}\n\nnot forwarded: the client gets ${status}: ${reason}`;
  }
  const { route, request } = captured;
  const { target: _, pool, balance: __, ...options } = route.options;
  const plan = compile(options, () => ANY_TRANSPORT);
  const hooks = nameHooks(route.options);
  const { upstream } = request;
  const isOwnClient =
    upstream.app === undefined && options.transport === undefined && options.fetch === undefined;
  const { sent, dropped } = explainFields(inspected.headers, request.headers, {
    plan,
    isTrusted: plan.trusts?.(CLIENT) ?? false,
    hooks,
  });
  assertHead(request);
  const head = writeHead(bufferCodec, request, "");
  const [line = ""] = bufferCodec.decode(head, 0, head.length).split("\r\n", 1);
  const shownLine = upstream.query === "" ? line : line.replace(`?${upstream.query}`, "?…");
  const rows: [text: string, reason: string][] = [
    [shownLine, (await explainPath(inspected.path, request, plan, hooks)).join(", then ")],
    [`Host: ${request.host ?? upstream.host}`, explainHost(request, plan, hooks)],
    ...sent.map((row) => toRow(row)),
  ];
  if (isOwnClient) rows.push(...explainEnd(request, pool?.keepAlive !== false));
  const to = upstream.socketPath === undefined ? upstream.origin : `unix:${upstream.socketPath}`;
  const by = upstream.app === undefined ? "" : " (an app in this process)";
  const lines = [
    `${title}\n`,
    `route ${route.match.join(", ")} → ${to}${by}${explainChoice(route.options)}\n`,
    renderRows(rows),
    ...(isOwnClient
      ? []
      : ["\nThe client of this route writes the framing, and perhaps other fields."]),
    ...(dropped.length === 0 ? [] : ["\nnot forwarded\n", renderRows(dropped.map(toRow))]),
  ];
  return lines.join("\n");
}

/** Tells how the upstream was chosen, where there are several. */
function explainChoice({ target, balance = {} }: RouteOptions): string {
  const names = nameUpstreams(target, nameAddress);
  if (names === undefined) return "";
  const { policy = "least_conn" } = balance;
  const by = typeof policy === "string" ? policy : "the policy of the config";
  return `, chosen by ${by} of ${names}`;
}

/** A transport with the capabilities of the runtimes' own, to compile options with. It sends nothing. */
const ANY_TRANSPORT: Transport = {
  name: "inspect",
  capabilities: { decodes: [], host: true, unixSocket: true, tls: true, http2: true },
  send: () => Promise.reject(new Error("a request is inspected, and not sent")),
};

function nameHooks({ onRequest, interceptors = {} }: RouteOptions): string[] {
  const { request = [], attempt = [] } = interceptors;
  return [
    ...(onRequest === undefined ? [] : ["onRequest"]),
    ...(request.length + attempt.length === 0 ? [] : ["interceptors"]),
  ];
}

/** Segments that web servers resolve when they make a web `Request`. */
const DOTS = /[/\\](?:\.|%2e){1,2}(?:[/\\?#]|$)/i;
const ANY = "http://localhost";

/** Explains how the path has become that of the upstream request. */
async function explainPath(
  path: string,
  { upstream, path: sent, method, upgrade }: UpstreamRequest,
  { options }: Plan,
  hooks: readonly string[],
): Promise<string[]> {
  const { stripPrefix, pathRewrite } = options;
  const steps: string[] = [];
  const apply = async (step: string, only: Plan["options"], from: string): Promise<string> => {
    const rewritten = (await compile(only, () => ANY_TRANSPORT).rewrite?.(from, missing)) ?? from;
    if (rewritten !== from) steps.push(step);
    return rewritten;
  };
  let now = upgrade === undefined && DOTS.test(path) ? pathOf(new URL(path, ANY).href) : path;
  if (now !== path) steps.push("dot segments are resolved");
  if (stripPrefix !== undefined) now = await apply("stripPrefix", { stripPrefix }, now);
  if (typeof pathRewrite === "function") return [...steps, "pathRewrite"];
  if (pathRewrite !== undefined) now = await apply("pathRewrite", { pathRewrite }, now);
  const joined = joinTarget(upstream, now, method);
  if (joined !== now) steps.push("the target's path or query in front");
  if (joined !== sent) steps.push(hooks.join(" or "));
  return steps.length === 0 ? ["as it came"] : steps;
}

function missing(): never {
  throw new Error("a map of patterns does not read the request");
}

function explainHost({ host, upstream }: UpstreamRequest, plan: Plan, hooks: string[]): string {
  const { options } = plan;
  if (host === undefined || host === upstream.host)
    return "the target's (changeOrigin, RFC 9110 §7.2)";
  if (host === options.host) return "set (host)";
  return plan.keepHost ? "the client's (changeOrigin: false)" : `set (${hooks.join(" or ")})`;
}

const END_REASONS: Readonly<Record<string, string>> = {
  "content-length": "the framing follows the body (RFC 9112 §6.3)",
  "transfer-encoding": "the framing follows the body (RFC 9112 §6.3)",
  connection: "about the connection to the upstream (RFC 9110 §7.6.1)",
  upgrade: "tunnelled (upgrades, RFC 9110 §7.8)",
  te: "the client accepts trailer fields (RFC 9110 §10.1.4)",
  trailer: "the client announces trailer fields (RFC 9110 §6.6.2)",
};

/** Explains the fields that the client of the runtime writes. */
function explainEnd(request: UpstreamRequest, keepAlive: boolean): [string, string][] {
  const length = request.body === null ? 0 : request.contentLength;
  const end = writeHeadEnd(request.method, length, keepAlive, request);
  return end
    .split("\r\n")
    .filter((line) => line !== "")
    .map((line) => [line, END_REASONS[line.split(":", 1)[0]?.toLowerCase() ?? ""] ?? "unknown"]);
}

/** Names of fields whose value may be a secret of the operator. */
const SECRET = /authorization|cookie|token|secret|password|key/i;

function toRow({ name, value, reason, option }: FieldRow): [string, string] {
  const shown = option === "headers" && SECRET.test(name) ? "(not shown)" : value;
  return [`${name}: ${shown}`, option === undefined ? reason : `${option}: ${reason}`];
}

/** The most characters that a field takes before its reason begins. */
const WIDTH = 46;

function renderRows(rows: readonly (readonly [string, string])[]): string {
  const width = Math.min(WIDTH, Math.max(...rows.map(([text]) => text.length)));
  return rows
    .map(([text, reason]) =>
      text.length > width
        ? `  ${text}\n${" ".repeat(width + 4)}${reason}`
        : `  ${text.padEnd(width)}  ${reason}`,
    )
    .join("\n");
}
