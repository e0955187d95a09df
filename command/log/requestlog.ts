import type { Writable } from "node:stream";
import { type RequestEnd, ProxyError, type WaitChange } from "#fetchway";
import { describeWait, escapeControls, renderDiagnosis } from "#fetchway/errors";
import { pathOf } from "#fetchway/requests";
import type { StateChange } from "#fetchway/upstreams";
import { diagnoseFailure, isClientGone } from "./causes.ts";
import { renderJson } from "./escape.ts";
import { type FailedRequest, FailureLog, kindOfFailure, type Repetition } from "./failurelog.ts";
import {
  clockTime,
  type Colours,
  coloursOf,
  createPalette,
  createPrettyForm,
  type LineForm,
  type Palette,
  renderCombined,
  renderCommon,
  renderDuration,
  renderJsonLine,
  renderOutcome,
} from "./lineforms.ts";
import { LineWriter, type Output } from "./linewriter.ts";
import { type Level, renderMessage } from "./ownmessages.ts";

/** The forms of the log: the values of `--log`. */
export type LogForm = "pretty" | "common" | "combined" | "json" | "off";

/** A change of an upstream with its time, in milliseconds since 1970. */
type TimedChange = (StateChange | WaitChange) & { readonly time: number };

type Stream = Output & Writable & { readonly isTTY?: boolean };

/** Chooses the form of the log for `--log auto`: `pretty` on a terminal, `common` elsewhere. */
export function chooseLogForm(stream: { readonly isTTY?: boolean }): LogForm {
  return stream.isTTY === true ? "pretty" : "common";
}

/**
 * The log of the command: lines of requests on stdout, and failures with cause and fix on stderr. In the form `pretty`, a
 * request that failed has a line only on stderr, because people read stdout and stderr together. In the form `json`, it has
 * a line only on stdout, which has the cause and the fix as well.
 *
 * srvx has a log as well (`srvx/log`). It is not used here, because it is a middleware: it knows neither the upstream nor the
 * size of a body, treats the head of a response as its end, and does not see upgrades and failures.
 */
export class RequestLog {
  readonly #form: LogForm;
  readonly #lines: LineWriter;
  readonly #errors: LineWriter;
  readonly #failures: FailureLog<FailedRequest>;
  /**
   * The changes of upstreams that are ejected, down, up again, or waited for. Equal changes are summed up like
   * failures, because the state of an upstream may change very often.
   */
  readonly #changes: FailureLog<TimedChange>;

  /** Called at the end of each request; undefined for the form `off`, so that nothing is measured for the log. */
  readonly onRequestEnd: ((end: RequestEnd) => void) | undefined;

  constructor(
    form: LogForm,
    stdout: Stream,
    stderr: Stream,
    colours: Colours = coloursOf(stdout, stderr),
  ) {
    this.#form = form;
    const isJson = form === "json";
    const renderDropped = (count: number): string =>
      renderMessage("error", describeDropped(count), isJson);
    this.#errors = new LineWriter(stderr, renderDropped);
    this.#lines = new LineWriter(stdout, renderDropped, (text) =>
      this.#errors.write(renderMessage("error", text, isJson)),
    );
    const palette = createPalette(colours.stderr);
    const forms = createFailureForms(form, palette);
    this.#failures = new FailureLog(
      (failed) => this.#errors.write(forms.render(failed)),
      (repetition) => this.#errors.write(forms.renderSum(repetition)),
      kindOfFailure,
    );
    const renderChange = createChangeForm(form, palette);
    const changes = isJson ? this.#lines : this.#errors;
    this.#changes = new FailureLog(
      (change) => changes.write(renderChange(change)),
      ({ last, count }) => changes.write(renderChange({ ...last, time: Date.now() }, count)),
      (change) => `${nameOf(change)} ${change.state}`,
    );
    const render = createLineForm(form, createPalette(colours.stdout));
    this.onRequestEnd = render && ((end) => this.#write(end, render));
  }

  /**
   * In the form `off`, reports the failure of a request. In that form, `onRequestEnd` is undefined, so a response that breaks
   * off after its head is not reported.
   */
  readonly onError = (error: unknown, request: Request): void => {
    if (isClientGone(error)) return;
    const failure = diagnoseFailure(error);
    const { method, url } = request;
    // Do not parse the URL: if the client sends no usable `Host`, Bun and Deno build a URL that no parser accepts.
    const path = pathOf(url);
    const status = error instanceof ProxyError ? error.status : 500;
    this.#failures.add({ method, path, status, failure, time: Date.now(), outcome: undefined });
  };

  /** In the form `off`, reports a request that no proxy has seen. */
  readonly onRefused = ({ method, path, status, error }: RequestEnd): void => {
    const failure = diagnoseFailure(error);
    this.#failures.add({ method, path, status, failure, time: Date.now(), outcome: undefined });
  };

  /** Reports that one of several upstreams is ejected, down, or up again. */
  readonly onStateChange = (change: StateChange): void => {
    this.#changes.add({ ...change, time: Date.now() });
  };

  /** Reports that requests wait for an upstream, or that none waits any longer. */
  readonly onWait = (change: WaitChange): void => {
    this.#changes.add({ ...change, time: Date.now() });
  };

  /** Writes the remaining lines. Resolves when they are written, or after a second if the reader of a pipe is too slow. */
  async close(): Promise<void> {
    this.#failures.flush();
    this.#changes.flush();
    await Promise.all([this.#lines.close(), this.#errors.close()]);
  }

  /** Writes the remaining lines synchronously, for a listener of the process's `exit`. */
  flushNow(): void {
    this.#failures.flush();
    this.#changes.flush();
    this.#lines.flushNow();
    this.#errors.flushNow();
  }

  #write(end: RequestEnd, render: LineForm): void {
    const { error } = end;
    const isFailure = error !== undefined && !isClientGone(error);
    if (!isFailure || this.#form !== "pretty") this.#lines.write(render(end));
    if (!isFailure || this.#form === "json") return;
    const { method, path, status, startedAt, timings } = end;
    const failure = diagnoseFailure(error);
    const time = startedAt + timings.total;
    const outcome = status < 400 ? renderOutcome(end) : undefined;
    this.#failures.add({ method, path, status, failure, time, outcome });
  }
}

function createLineForm(form: LogForm, palette: Palette): LineForm | undefined {
  switch (form) {
    case "pretty":
      return createPrettyForm(palette);
    case "common":
      return renderCommon;
    case "combined":
      return renderCombined;
    case "json":
      return renderJsonLine;
    case "off":
      return undefined;
  }
}

interface FailureForms {
  readonly render: (failed: FailedRequest) => string;
  readonly renderSum: (repetition: Repetition<FailedRequest>) => string;
}

function createFailureForms(form: LogForm, { dim, red, bold }: Palette): FailureForms {
  const renderTime = form === "pretty" ? clockTime : toIsoTime;
  return {
    render({ method, path, status, failure, time, outcome }) {
      const request = `${dim(renderTime(time))} ${bold(escapeControls(method))} ${escapeControls(path)}`;
      const result = red(String(status)) + (outcome === undefined ? "" : ` ${outcome}:`);
      return `${request} → ${result} ${renderDiagnosis(failure)}`;
    },
    renderSum({ last, count, span, isMixed }) {
      const times = `… ${count} ${count === 1 ? "time" : "times"} more in ${renderDuration(span)}`;
      const what = isMixed ? "other failures, the last was" : "";
      // Show the current time: the last failure may be older than the lines printed before this one.
      return `${dim(renderTime(Date.now()))} ${times}:${what && ` ${what}`} ${last.status} ${renderDiagnosis(last.failure)}`;
    },
  };
}

/** Returns a function that renders a change of an upstream, or `count` equal changes, as a line. */
function createChangeForm(
  form: LogForm,
  { dim, red, green }: Palette,
): (change: TimedChange, count?: number) => string {
  if (form === "json") {
    return (change, count) => {
      const { state, reason } = change;
      const time = toIsoTime(change.time);
      const level = LEVELS[state];
      const waits = "requests" in change && {
        held: change.requests,
        ms: Math.round(change.duration),
      };
      return renderJson({ time, level, upstream: nameOf(change), state, reason, ...waits, count });
    };
  }
  const renderTime = form === "pretty" ? clockTime : toIsoTime;
  return (change, count) => {
    const more = count === undefined ? "" : ` … ${count} ${count === 1 ? "time" : "times"} more:`;
    const begin = `${dim(renderTime(change.time))}${more}`;
    if ("requests" in change) return `${begin} ${describeWait(change)}`;
    const { name, state, reason } = change;
    const shown = state === "up" ? green(state) : red(state);
    return `${begin} upstream ${escapeControls(name)} ${shown}: ${reason}`;
  };
}

const LEVELS: Readonly<Record<TimedChange["state"], Level>> = {
  up: "info",
  back: "info",
  waiting: "warn",
  over: "error",
  ejected: "error",
  down: "error",
};

function nameOf(change: TimedChange): string {
  return "name" in change ? change.name : change.upstream;
}

function toIsoTime(time: number): string {
  return new Date(time).toISOString();
}

/** Renders the notice of lines that were dropped. */
export function describeDropped(count: number): string {
  const lines = count === 1 ? "line was" : "lines were";
  return `${count} ${lines} dropped: this log could not be written, or its reader is too slow`;
}
