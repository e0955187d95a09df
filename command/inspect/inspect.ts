/**
 * Shows what a request would become, without sending it: `fetchway … --inspect "GET http://shop.example/api/x"`.
 *
 * The request passes through the server and the routes like any other. The proxy of its route explains it instead of sending
 * it.
 */
import { connect } from "node:net";
import type { ExplainedField, Explanation } from "#fetchway";
import { pathOf } from "#fetchway/requests";
import type { ServerRequest } from "srvx";
import type { RouteSettings, Settings } from "../config/settings.ts";
import { nameAddress, nameUpstreams, type RouteOptions } from "../flags/severalupstreams.ts";
import { diagnoseFailure } from "../log/causes.ts";
import { listen } from "../serve/listen.ts";
import { Router } from "../serve/routes.ts";
import { type InspectedRequest, writeInspected } from "./inspectedrequest.ts";

/** The outcome of an inspection. */
export interface InspectedOutcome {
  /** The route, and the explanation of its proxy; undefined if the server itself responds. */
  readonly explained: [RouteSettings, Explanation] | undefined;
  /** The response that the server sent. If the request would not be forwarded, the client would get this response. */
  readonly answer: string;
  /** Why the request would not be forwarded; undefined if it would be, or if a hook responds. */
  readonly error: unknown;
}

/** The address of the client that sends the inspected request, and of the server. */
const CLIENT = "127.0.0.1";

/** Gives a request to the routes, and lets the proxy that it reaches explain it. */
export async function capture(
  inspected: InspectedRequest,
  settings: Settings,
): Promise<InspectedOutcome> {
  let explained: InspectedOutcome["explained"];
  let error: unknown;
  const router = new Router(settings.routes, dropBackgroundWork);
  const answer = async (request: ServerRequest): Promise<Response> => {
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
  const front = await listen(answer, { port: 0, host: CLIENT, websocket: router.websocket });
  try {
    const port = Number(new URL(front.server.url ?? "").port);
    const isSent = (): boolean => explained?.[1].request !== undefined;
    const answered = await sendInspected(port, writeInspected(inspected), isSent);
    return { explained, answer: answered, error };
  } finally {
    router.destroy();
    await front.server.close(true);
  }
}

/** Drops the options that cause traffic without a request: health checks, and lookups of names. */
function dropBackgroundWork(options: RouteOptions): RouteOptions {
  if (options.balance === undefined) return options;
  const { check: _, resolve: __, ...balance } = options.balance;
  return { ...options, balance };
}

/** Sends bytes to the server, and returns its answer, or the part that has arrived when `isDone` is true. */
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

/** Whether an answer is complete, by its Content-Length, or by its last chunk. */
function isAnswerComplete(answer: string): boolean {
  const end = answer.indexOf("\r\n\r\n");
  if (end < 0) return false;
  const length = /^content-length: *(\d+)/im.exec(answer.slice(0, end))?.[1];
  if (length !== undefined) return answer.length >= end + 4 + Number(length);
  return !/^transfer-encoding:/im.test(answer.slice(0, end)) || answer.endsWith("0\r\n\r\n");
}

/** Renders what a request becomes, field by field, each with the reason. */
export function renderInspection(inspected: InspectedRequest, outcome: InspectedOutcome): string {
  const { explained, answer, error } = outcome;
  const title = `${inspected.method} ${inspected.path} from a client at ${CLIENT}; nothing is sent`;
  const [route, explanation] = explained ?? [];
  if (route === undefined || explanation?.request === undefined) {
    const [, status = "", body = ""] = /^HTTP\/1\.1 (\d+)[^]*?\r\n\r\n([^]*)$/.exec(answer) ?? [];
    // A short body without Content-Length is sent as one chunk.
    const text = body.replace(/^[\da-f]+\r\n([^]*)\r\n0\r\n\r\n$/i, "$1").trim();
    const cause = error === undefined ? undefined : diagnoseFailure(error).cause;
    const reason = cause ?? (text === "" ? "the server refuses it before it has a route" : text);
    return `${title}\n\nnot forwarded: the client gets ${status}: ${reason}`;
  }
  const { request, path, fields, dropped } = explanation;
  const { upstream } = request;
  const isFramed =
    upstream.app === undefined &&
    route.options.transport === undefined &&
    route.options.fetch === undefined;
  const line = `${request.method} ${request.path} HTTP/1.1`;
  const shownLine = upstream.query === "" ? line : line.replace(`?${upstream.query}`, "?…");
  const steps = isResolved(inspected.path, request.upgrade)
    ? ["dot segments are resolved", ...path]
    : path;
  const rows: [text: string, reason: string][] = [
    [shownLine, steps.length === 0 ? "unchanged" : steps.join(", then ")],
    ...fields.map(toRow),
  ];
  const to = upstream.socketPath === undefined ? upstream.origin : `unix:${upstream.socketPath}`;
  const by = upstream.app === undefined ? "" : " (an app in this process)";
  const lines = [
    `${title}\n`,
    `route ${route.match.join(", ")} → ${to}${by}${explainChoice(route.options)}\n`,
    renderRows(rows),
    ...(isFramed
      ? []
      : ["\nThe HTTP client of this route writes the framing, and perhaps other fields."]),
    ...(dropped.length === 0 ? [] : ["\nnot forwarded\n", renderRows(dropped.map(toRow))]),
  ];
  return lines.join("\n");
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

/** Whether the server has resolved dot segments of the path. It does not do so for an upgrade request. */
function isResolved(path: string, upgrade: string | undefined): boolean {
  return (
    upgrade === undefined &&
    DOTS.test(path) &&
    pathOf(new URL(path, "http://localhost").href) !== path
  );
}

/** Matches the names of fields whose values may be secrets of the operator. */
const SECRET = /authorization|cookie|token|secret|password|key/i;

function toRow({ name, value, reason, option }: ExplainedField): [string, string] {
  const shown = option === "headers" && SECRET.test(name) ? "(not shown)" : value;
  return [`${name}: ${shown}`, option === undefined ? reason : `${option}: ${reason}`];
}

/** The width of the column for fields. The reason for a longer field is on the next line. */
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
