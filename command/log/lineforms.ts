/**
 * The forms of the log's lines. Each form is a function that renders the end of a request. Every form escapes control
 * characters that a request contains.
 */
import process from "node:process";
import { styleText } from "node:util";
import { ProxyError, type RequestEnd } from "#fetchway";
import { escapeControls } from "#fetchway/errors";
import { diagnoseFailure, isClientGone, nameUpstream } from "./causes.ts";
import { escapeAsApache, renderJson } from "./escape.ts";
import type { Level } from "./ownmessages.ts";
import { tlsVersionOf } from "./tlsversions.ts";

/** Renders the end of a request as a line, without the line break. */
export type LineForm = (end: RequestEnd) => string;

// ── numbers for people ──

/** Renders milliseconds in the unit that fits: `0.4 ms`, `12 ms`, `3.2 s`, `5 m 07 s`, `2 h 05 m`. */
export function renderDuration(milliseconds: number): string {
  if (milliseconds < 9.95) return `${milliseconds.toFixed(1)} ms`;
  if (milliseconds < 999.5) return `${milliseconds.toFixed(0)} ms`;
  if (milliseconds < 59_950) return `${(milliseconds / 1000).toFixed(1)} s`;
  const seconds = Math.round(milliseconds / 1000);
  const [hours, minutes] = [Math.floor(seconds / 3600), Math.floor(seconds / 60) % 60];
  if (hours > 0) return `${hours} h ${padTwo(minutes)} m`;
  return `${minutes} m ${padTwo(seconds % 60)} s`;
}

/** Renders a number of bytes in the unit that fits: `45 B`, `1.2 kB`, `35 MB`. */
export function renderSize(bytes: number): string {
  if (bytes < 1000) return `${bytes} B`;
  let size = bytes;
  let unit = -1;
  do {
    size /= 1000;
    unit++;
  } while (size >= 999.5 && unit < 3);
  return `${size < 9.95 ? size.toFixed(1) : size.toFixed(0)} ${"kMGT"[unit]}B`;
}

function padTwo(number: number): string {
  return number < 10 ? `0${number}` : String(number);
}

/** Returns a function that renders a time. It caches the last text, because many lines have the same second. */
function everySecond(render: (date: Date) => string): (time: number) => string {
  let last = NaN;
  let text = "";
  return (time) => {
    const second = Math.floor(time / 1000);
    if (second !== last) {
      last = second;
      text = render(new Date(second * 1000));
    }
    return text;
  };
}

/** Renders the time of day in the local time zone. */
export const clockTime: (time: number) => string = everySecond(
  (date) => `${padTwo(date.getHours())}:${padTwo(date.getMinutes())}:${padTwo(date.getSeconds())}`,
);

// ── pretty ──

type Paint = (text: string) => string;

/** Functions that colour a text for a stream. Each returns its text unchanged if the stream does not show colours. */
export interface Palette {
  readonly dim: Paint;
  readonly bold: Paint;
  readonly green: Paint;
  readonly cyan: Paint;
  readonly yellow: Paint;
  readonly red: Paint;
}

/** Whether the two streams of the output show colours. */
export interface Colours {
  readonly stdout: boolean;
  readonly stderr: boolean;
}

type Stream = { readonly isTTY?: boolean };

/** Returns which streams show colours: terminals, unless an environment variable such as `NO_COLOR` decides otherwise. */
export function coloursOf(stdout: Stream, stderr: Stream): Colours {
  return { stdout: showsColours(stdout), stderr: showsColours(stderr) };
}

function showsColours(stream: Stream): boolean {
  try {
    if (styleText("bold", "|", { stream: stream as NodeJS.WritableStream }) === "|") return false;
  } catch {
    // On a terminal, `styleText` reads several environment variables, which Deno may not permit.
    return false;
  }
  // `util.styleText` of Node 22.12 and older does not check the stream.
  const { FORCE_COLOR, NO_COLOR } = process.env;
  return FORCE_COLOR !== undefined || (stream.isTTY === true && NO_COLOR === undefined);
}

export function createPalette(isColoured: boolean): Palette {
  const painter = (open: number, close: number): Paint =>
    isColoured ? (text) => `\u001b[${open}m${text}\u001b[${close}m` : (text) => text;
  return {
    dim: painter(90, 39),
    bold: painter(1, 22),
    green: painter(32, 39),
    cyan: painter(36, 39),
    yellow: painter(33, 39),
    red: painter(31, 39),
  };
}

function paintStatus(palette: Palette, status: number): string {
  const text = String(status);
  if (status >= 500) return palette.red(text);
  if (status >= 400) return palette.yellow(text);
  return status >= 300 || status < 200 ? palette.cyan(text) : palette.green(text);
}

/** Makes the form for people: `08:33:52 GET /a → 127.0.0.1:4000 200 3.2 ms 1.2 kB`. */
export function createPrettyForm(palette: Palette): LineForm {
  const { dim, bold } = palette;
  const time = everySecond((date) => dim(clockTime(date.getTime())));
  return (end) => {
    const { method, path, upstream, status, timings } = end;
    const to = upstream === undefined ? "" : dim(` → ${escapeControls(nameUpstream(upstream))}`);
    const request = `${time(end.startedAt + timings.total)} ${bold(escapeControls(method))} ${escapeControls(path)}`;
    return `${request}${to} ${paintStatus(palette, status)} ${dim(renderOutcome(end))}`;
  };
}

/** Renders the outcome of a request, without its status: how long it took, how much was sent, and whether it ended early. */
export function renderOutcome(end: RequestEnd): string {
  const { bytesIn, bytesOut, protocol, error, attempts, timings } = end;
  const duration = renderDuration(timings.total);
  const held = timings.held === undefined ? "" : `, held ${renderDuration(timings.held)}`;
  const tries = (attempts > 1 ? `, ${attempts} attempts` : "") + held;
  const sent = bytesOut === undefined ? "" : renderSize(bytesOut);
  if (protocol !== undefined && end.status === 101) {
    const ended = error === undefined || isClientGone(error) ? "closed" : "cut";
    const moved = `${renderSize(bytesIn ?? 0)} in, ${sent} out`;
    return `${escapeControls(protocol)} ${ended} after ${duration}, ${moved}${tries}`;
  }
  if (isClientGone(error)) return `client left after ${duration}${sent && `, ${sent}`}${tries}`;
  if (error !== undefined) return `cut after ${duration}${sent && `, ${sent}`}${tries}`;
  return `${duration}${sent && ` ${sent}`}${tries}`;
}

// ── Apache's forms ──

const MONTHS = "Jan Feb Mar Apr May Jun Jul Aug Sep Oct Nov Dec".split(" ");

/** Renders a time as `%t` does: `[10/Oct/2000:13:55:36 -0700]`. */
const apacheTime = everySecond((date) => {
  const offset = -date.getTimezoneOffset();
  const zone = padTwo(Math.floor(Math.abs(offset) / 60)) + padTwo(Math.abs(offset) % 60);
  const day = `${padTwo(date.getDate())}/${MONTHS[date.getMonth()]}/${date.getFullYear()}`;
  return `[${day}:${clockTime(date.getTime())} ${offset < 0 ? "-" : "+"}${zone}]`;
});

/** The members of an srvx request that lead to the version of HTTP on Node. */
interface ServerRequest {
  readonly runtime?: { readonly node?: { readonly req?: { readonly httpVersion?: string } } };
}

/**
 * Renders the Common Log Format, `%h %l %u %t "%r" %>s %b`. The time is that of the start of the request, as in Apache. The
 * version of HTTP is 1.1 if the runtime does not report it.
 * @see https://httpd.apache.org/docs/2.4/logs.html#common
 */
export function renderCommon(end: RequestEnd): string {
  const { clientAddress = "-", method, path, status, bytesOut, startedAt } = end;
  const version = (end.request as ServerRequest).runtime?.node?.req?.httpVersion ?? "1.1";
  const line = `${escapeAsApache(method)} ${escapeAsApache(path)} HTTP/${version}`;
  // The hook `clientAddress` may read the address from a field, so escape it. `%b` is a hyphen where no bytes were sent.
  return `${escapeAsApache(clientAddress)} - - ${apacheTime(startedAt)} "${line}" ${status} ${bytesOut || "-"}`;
}

/** Renders the Combined Log Format: the common one with `"%{Referer}i" "%{User-agent}i"`. */
export function renderCombined(end: RequestEnd): string {
  const { headers } = end.request;
  const referer = escapeAsApache(headers.get("referer") || "-");
  return `${renderCommon(end)} "${referer}" "${escapeAsApache(headers.get("user-agent") || "-")}"`;
}

// ── JSON ──

/** Renders one JSON object. docs/log.md lists its keys; a key without a value is left out. */
export function renderJsonLine(end: RequestEnd): string {
  const { error, timings } = end;
  const failure = error === undefined || isClientGone(error) ? undefined : diagnoseFailure(error);
  return renderJson({
    time: new Date(end.startedAt).toISOString(),
    level: failure === undefined ? "info" : levelOfFailure(error),
    client: end.clientAddress,
    method: end.method,
    host: end.authority,
    path: end.path,
    route: end.route,
    status: end.status,
    upstream: end.upstream,
    ms: round(timings.total),
    heldMs: round(timings.held),
    queueMs: round(timings.queue),
    connectMs: round(timings.connect),
    firstByteMs: round(timings.firstByte),
    bytesIn: end.bytesIn,
    bytesOut: end.bytesOut,
    attempts: end.attempts,
    reused: end.reused,
    protocol: end.protocol,
    userAgent: end.request.headers.get("user-agent") ?? undefined,
    tls: tlsVersionOf(end.request),
    clientLeft: isClientGone(error) || undefined,
    code: failure?.code,
    cause: failure?.cause,
    fix: failure?.fix,
  });
}

/** Returns `warn` if the client is the cause of a failure, so that a client cannot cause alarms. */
function levelOfFailure(error: unknown): Level {
  return error instanceof ProxyError && error.status < 500 ? "warn" : "error";
}

/** Rounds milliseconds to microseconds: more digits are noise. */
function round(milliseconds: number | undefined): number | undefined {
  return milliseconds === undefined ? undefined : Math.round(milliseconds * 1000) / 1000;
}
