/**
 * Shows what a request would become, without sending it: `fetchway … --inspect "GET http://shop.example/api/x"`.
 *
 * The request passes through the server and the routes like any other. The proxy of its route explains it instead of sending
 * it.
 */
import { connect, isIP, type Socket } from "node:net";
import { connect as connectTls } from "node:tls";
import type { ExplainedField, Explanation } from "#fetchway";
import { pathOf } from "#fetchway/requests";
import type { ServerRequest } from "srvx";
import type { RouteSettings, Settings } from "../config/settings.ts";
import type { ServerSettings } from "../flags/commandoptions.ts";
import { nameAddress, nameUpstreams, type RouteOptions } from "../flags/severalupstreams.ts";
import { diagnoseFailure } from "../log/causes.ts";
import { SECRET_NAME } from "../log/redact.ts";
import type { CertificateTexts } from "../serve/certificate.ts";
import { describeRoute } from "../serve/routecondition.ts";
import { addCors } from "../serve/cors.ts";
import { listen } from "../serve/listen.ts";
import { LOOPBACK, nearOrigin } from "../serve/loopback.ts";
import { Router } from "../serve/routes.ts";
import { nameSocketClients, readSocketPath } from "../serve/socketfile.ts";
import { type InspectedRequest, writeInspected } from "./inspectedrequest.ts";

export interface InspectedOutcome {
  /** The route, and the explanation of its proxy; undefined if the server itself responds. */
  readonly explained: [RouteSettings, Explanation] | undefined;
  /** The response that the server sent. If the request would not be forwarded, the client would get this response. */
  readonly answer: string;
  /** Why the request would not be forwarded; undefined if it would be, or if a hook or the server itself responds. */
  readonly error: unknown;
  /** The path as the server passes it to the routes; `""` if the server itself responds. */
  readonly path: string;
  /** The address of the client that has sent the request. */
  readonly client: string;
  readonly isSecure: boolean;
  /** Whether clients without TLS are redirected to HTTPS. */
  readonly isRedirecting: boolean;
}

/** Returns the authority with which a client on this machine would address the server. */
export function nameServer({ host, port, cert }: ServerSettings): string {
  if (readSocketPath(host) !== undefined) return "localhost";
  const name = isIP(host) === 6 ? `[${host}]` : host;
  // A server on port 0 has a port that is not known yet.
  const end = port === 0 ? "" : `:${port}`;
  return new URL(nearOrigin(`${cert === undefined ? "http" : "https"}://${name}${end}`)).host;
}

/**
 * Sends a request to a server with the routes. The proxy that the request reaches explains the request. The server has the
 * certificate and the limits of the server that the command would start, but listens on a free port of the loopback interface.
 */
export async function capture(
  inspected: InspectedRequest,
  settings: Settings,
  certificate?: CertificateTexts,
): Promise<InspectedOutcome> {
  const { server } = settings;
  const isOnSocket = readSocketPath(server.host) !== undefined;
  let explained: InspectedOutcome["explained"];
  let error: unknown;
  const router = new Router(settings.routes, (options) =>
    dropBackgroundWork(isOnSocket ? nameSocketClients(options) : options),
  );
  let path = "";
  const answer = async (request: ServerRequest): Promise<Response> => {
    keepUpgradePath(request);
    path = pathOf(request.url);
    try {
      explained = await router.explain(request);
    } catch (thrown) {
      error = thrown;
      throw thrown;
    }
    const [, explanation] = explained;
    ({ error } = explanation);
    return explanation.response ?? new Response(null);
  };
  const front = await listen(addCors(answer, server), {
    port: 0,
    host: server.host === "::1" ? server.host : LOOPBACK,
    limits: server,
    certificate,
    websocket: router.websocket,
  });
  try {
    const { hostname, port } = new URL(front.address);
    const client = hostname.replace(/^\[(.*)\]$/, "$1");
    const isSecure = certificate !== undefined;
    const isRedirecting = server.redirectHttp !== undefined;
    const socket = dial(isSecure, client, Number(port));
    const isSent = (): boolean => explained?.[1].request !== undefined;
    const answered = await sendInspected(socket, inspected, isSent);
    return { explained, answer: answered, error, path, client, isSecure, isRedirecting };
  } finally {
    router.destroy();
    await front.server.close(true);
  }
}

/**
 * Restores the path of an upgrade request as the client sent it. srvx resolves dot segments when it creates a web
 * `Request`, but a real upgrade reaches the proxy without a web `Request`.
 */
function keepUpgradePath(request: ServerRequest): void {
  const message = request.runtime?.node?.req;
  if (message?.headers.upgrade === undefined || !message.url?.startsWith("/")) return;
  const url = new URL(request.url).origin + message.url;
  Object.defineProperty(request, "url", { value: url });
}

/** Drops the options that cause traffic without a request: health checks, and lookups of names. */
function dropBackgroundWork(options: RouteOptions): RouteOptions {
  if (options.balance === undefined) return options;
  const { check: _, resolve: __, ...balance } = options.balance;
  return { ...options, balance };
}

/** Connects to the server as a client that speaks HTTP/1.1. */
function dial(isSecure: boolean, host: string, port: number): Socket {
  // The certificate names other hosts than the loopback address, so do not verify it.
  return isSecure
    ? connectTls({ host, port, rejectUnauthorized: false, ALPNProtocols: ["http/1.1"] })
    : connect(port, host);
}

/**
 * Sends a request to the server, and returns its answer without interim responses, or the part that has arrived when `isDone`
 * is true.
 */
function sendInspected(
  socket: Socket,
  inspected: InspectedRequest,
  isDone: () => boolean,
): Promise<string> {
  return new Promise((resolve, reject) => {
    let answer = "";
    socket.write(writeInspected(inspected));
    const finish = (): void => {
      socket.destroy();
      resolve(answer);
    };
    socket.on("data", (data: Buffer) => {
      answer = (answer + data.toString("latin1")).replace(INTERIM, "");
      if (isDone() || isAnswerComplete(inspected.method, answer)) finish();
    });
    socket.on("end", finish).on("error", reject);
  });
}

/** Matches the interim responses before an answer, such as the 100 that a request with `Expect` gets. */
const INTERIM = /^(?:HTTP\/1\.1 1[^]*?\r\n\r\n)+/;

/**
 * Whether an answer is complete, by its Content-Length or its last chunk; an answer with neither ends with its head, and so does
 * one that has no body by its method or status (RFC 9112 §6.3).
 */
function isAnswerComplete(method: string, answer: string): boolean {
  const end = answer.indexOf("\r\n\r\n");
  if (end < 0) return false;
  if (method === "HEAD" || /^HTTP\/1\.1 (?:204|304) /.test(answer)) return true;
  const length = /^content-length: *(\d+)/im.exec(answer.slice(0, end))?.[1];
  if (length !== undefined) return answer.length >= end + 4 + Number(length);
  return !/^transfer-encoding:/im.test(answer.slice(0, end)) || answer.endsWith("0\r\n\r\n");
}

/** Renders which request is inspected. */
function renderTitle(
  { method, path, scheme }: InspectedRequest,
  { client, isSecure, isRedirecting }: InspectedOutcome,
): string {
  const by = isSecure ? " over https" : "";
  const title = `${method} ${path} from a client at ${client}${by}; nothing is sent`;
  if (scheme === undefined || (scheme === "https") === isSecure) return title;
  const why = isRedirecting
    ? "the client gets 308 to https (--redirect-http)"
    : `the server has ${isSecure ? "a" : "no"} certificate (--cert)`;
  return `${title}\nnot over ${scheme}: ${why}`;
}

/** Renders what a request becomes, field by field, each with the reason. */
export function renderInspection(inspected: InspectedRequest, outcome: InspectedOutcome): string {
  const { explained, answer } = outcome;
  const title = renderTitle(inspected, outcome);
  const [route, explanation] = explained ?? [];
  if (route === undefined || explanation?.request === undefined) {
    const [, status = "", body = ""] = /^HTTP\/1\.1 (\d+)[^]*?\r\n\r\n([^]*)$/.exec(answer) ?? [];
    // Remove the chunk framing of a short body without Content-Length.
    const text = body.replace(/^[\da-f]+\r\n([^]*)\r\n0\r\n\r\n$/i, "$1").trim();
    return `${title}\n\nnot forwarded: the client gets ${status}: ${explainRefusal(outcome, status, text)}`;
  }
  const { request, path, fields, dropped } = explanation;
  const { upstream } = request;
  const isFramed =
    upstream.app === undefined &&
    route.options.transport === undefined &&
    route.options.fetch === undefined;
  const isHttp2 = isFramed && request.upgrade === undefined && mayUseHttp2(upstream, route);
  const line = `${request.method} ${request.path} HTTP/${isHttp2 ? "2" : "1.1"}`;
  const shownLine = upstream.query === "" ? line : line.replace(`?${upstream.query}`, "?…");
  const isResolved = outcome.path !== inspected.path && DOTS.test(inspected.path);
  const steps = isResolved ? ["dot segments are resolved", ...path] : path;
  const rows: [text: string, reason: string][] = [
    [shownLine, steps.length === 0 ? "unchanged" : steps.join(", then ")],
    ...(isHttp2 ? toHttp2Fields(fields) : fields).map(toRow),
  ];
  const to = upstream.socketPath === undefined ? upstream.origin : `unix:${upstream.socketPath}`;
  const by = upstream.app === undefined ? "" : " (an app in this process)";
  const lines = [
    `${title}\n`,
    `route ${describeRoute(route)} → ${to}${by}${explainChoice(route.options)}\n`,
    renderRows(rows),
    ...(isFramed
      ? []
      : ["\nThe HTTP client of this route writes the framing, and perhaps other fields."]),
    ...(isHttp2 && upstream.secure
      ? ["\nAn upstream that does not choose HTTP/2 gets the same over HTTP/1.1."]
      : []),
    ...(dropped.length === 0 ? [] : ["\nnot forwarded\n", renderRows(dropped.map(toRow))]),
  ];
  return lines.join("\n");
}

type CapturedUpstream = NonNullable<Explanation["request"]>["upstream"];

/** Whether the upstream may get the request over HTTP/2. The option of a target takes precedence over that of the pool. */
function mayUseHttp2({ http2 }: CapturedUpstream, { options }: RouteSettings): boolean {
  return http2 ?? options.pool?.http2 ?? false;
}

/** The fields of an HTTP/1.1 request without a body that are not sent over HTTP/2. */
const NOT_IN_HTTP2: ReadonlySet<string> = new Set([
  "connection",
  "content-length",
  "transfer-encoding",
]);

/** Returns the fields as HTTP/2 has them: names in lower case, and `:authority` instead of `Host` (RFC 9113 §8.3.1). */
function toHttp2Fields(fields: readonly ExplainedField[]): ExplainedField[] {
  return fields.flatMap((field) => {
    const name = field.name.toLowerCase();
    if (NOT_IN_HTTP2.has(name)) return [];
    return [{ ...field, name: name === "host" ? ":authority" : name }];
  });
}

/** Renders why the client gets a response without the upstream. */
function explainRefusal(
  { explained, error }: InspectedOutcome,
  status: string,
  text: string,
): string {
  if (error !== undefined) return diagnoseFailure(error).cause;
  if (text !== "") return text;
  if (explained !== undefined) return "a response without a body";
  // Only the answer to a preflight has this status and no route.
  return status === "204"
    ? "the server itself answers preflights of CORS (--cors, --cors-origin)"
    : "the server refuses it before it has a route";
}

/** Renders how the upstream was chosen, if there are several. */
function explainChoice({ target, balance = {} }: RouteOptions): string {
  const names = nameUpstreams(target, nameAddress);
  if (names === undefined) return "";
  const { policy = "least_conn" } = balance;
  const by = typeof policy === "string" ? policy : "the policy of the config";
  return `, chosen by ${by} of ${names}`;
}

/** Matches dot segments, which servers resolve when they create a web `Request`. */
const DOTS = /[/\\](?:\.|%2e){1,2}(?:[/\\?#]|$)/i;

function toRow({ name, value, reason, option }: ExplainedField): [string, string] {
  const shown = option === "headers" && SECRET_NAME.test(name) ? "(not shown)" : value;
  return [`${name}: ${shown}`, option === undefined ? reason : `${option}: ${reason}`];
}

/** The maximum width of the column for fields, in characters. The reason for a longer field is on the next line. */
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
