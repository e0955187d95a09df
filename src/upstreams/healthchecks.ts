import { ProxyError, toProxyError } from "../error.ts";
import { refusePromise } from "../misuse.ts";
import { joinTarget, parseTarget, type TargetAddress } from "../target/target.ts";
import { poolClosed } from "../transport/closing.ts";
import { Deadline } from "../transport/deadline.ts";
import { discardBody, type UpstreamRequest, type UpstreamResponse } from "../transport/message.ts";
import type { Transport } from "../transport/port.ts";
import { Scope } from "../transport/scope.ts";
import { startBackgroundTimer } from "../transport/timers.ts";

/** Options of active health checks: requests that the proxy sends to find out whether an upstream works. */
export interface CheckOptions {
  /** The path and query of the request, such as `/health`. They follow the base path of the target. */
  path: string;
  /**
   * Milliseconds between two checks of an upstream.
   * @default 10000
   */
  interval?: number;
  /**
   * Milliseconds to wait for the response headers, and for the text in the body if `body` is set.
   * @default 5000
   */
  timeout?: number;
  /**
   * The status with which a working upstream responds, or a function that returns whether a status is right.
   * @default 200 to 299
   */
  status?: number | ((status: number) => boolean);
  /** A text that the body of the response must contain, within its first 64 KiB. */
  body?: string;
  /** Header fields of the request. */
  headers?: Readonly<Record<string, string>>;
  /**
   * The number of successive checks that must succeed before an upstream that is down or ejected gets requests again. For
   * an ejected upstream, only the checks that begin after the ejection count. The ejection also ends when its time is over,
   * as it does without checks.
   * @default 2
   */
  healthyThreshold?: number;
  /**
   * The number of successive checks that must fail before an upstream gets no more requests.
   * @default 3
   */
  unhealthyThreshold?: number;
}

/** The number of characters after which no further chunk of a body is searched. */
const MAX_BODY = 65_536;

/** The members of an upstream that its checks use. */
export interface Checked {
  readonly target: TargetAddress;
  /** Whether the checks find that the upstream works. */
  isUp: boolean;
  /** A number that identifies the present ejection of the upstream; 0 if it is not ejected. */
  readonly ejection: number;
  endEjection(): void;
}

/** The results of an upstream's last checks, which may change its state. */
interface Streak {
  /** The number of successive checks whose result contradicts `isUp`. */
  contrary: number;
  /** The `ejection` of the upstream when the last check began; 0 for none. */
  readonly ejection: number;
  /** The number of successive checks that began in the ejection `ejection` and succeeded. */
  readonly successes: number;
}

/** Checks upstreams at an interval. Its timers do not keep the process alive. */
export class HealthChecks {
  readonly #options: CheckOptions;
  readonly #timers: Map<Checked, ReturnType<typeof setTimeout>> = new Map();
  /** The scopes of the checks that run. */
  readonly #running: Set<Scope> = new Set();
  readonly #streaks: WeakMap<Checked, Streak> = new WeakMap();
  #transport: Transport | undefined;
  #onChange: (checked: Checked, reason: string) => void = () => {};

  constructor(options: CheckOptions) {
    this.#options = options;
  }

  /** Starts the checks, unless they are running. */
  start(
    transport: Transport,
    checked: readonly Checked[],
    onChange: (checked: Checked, reason: string) => void,
  ): void {
    if (this.#transport !== undefined) return;
    this.#transport = transport;
    this.#onChange = onChange;
    for (const each of checked) this.add(each);
  }

  /**
   * Starts the checks of an upstream at a random time within the interval, so that proxies that start together do not all
   * check at the same time.
   */
  add(checked: Checked): void {
    if (this.#transport !== undefined) this.#wait(checked, Math.random());
  }

  remove(checked: Checked): void {
    clearTimeout(this.#timers.get(checked));
    this.#timers.delete(checked);
  }

  /** Ends all checks. */
  close(): void {
    for (const timer of this.#timers.values()) clearTimeout(timer);
    this.#timers.clear();
    this.#transport = undefined;
    for (const scope of this.#running) scope.abort(poolClosed());
  }

  #wait(checked: Checked, part: number): void {
    const { interval = 10_000 } = this.#options;
    const check = (): void => void this.#check(checked);
    this.#timers.set(checked, startBackgroundTimer(check, interval * part));
  }

  async #check(checked: Checked): Promise<void> {
    const transport = this.#transport;
    if (transport === undefined) return;
    const timer = this.#timers.get(checked);
    const { timeout = 5_000 } = this.#options;
    const { ejection } = checked;
    // The scope's own deadline would end when the response headers arrive, but this time limit includes the search in the body.
    const scope = new Scope({ listen() {}, unlisten() {} }, 0, 0);
    this.#running.add(scope);
    const deadline = new Deadline(timeout, () => scope.abort(checkTimeout(timeout)));
    const failure = await this.#ask(checked.target, transport, scope).catch(
      (thrown: unknown) => toProxyError(thrown).code,
    );
    deadline.clear();
    this.#running.delete(scope);
    scope.end();
    // Drop the result if the checks were stopped meanwhile, even if they were started again.
    if (timer === undefined || this.#timers.get(checked) !== timer) return;
    // A check for which the proxy had no free connection or file descriptor says nothing about the upstream.
    if (failure !== "connection_limit_reached") this.#count(checked, failure, ejection);
    this.#wait(checked, 1);
  }

  /**
   * @param ejection the `ejection` of the upstream when the check began. A check that began before an ejection does not
   * help to end that ejection
   */
  #count(checked: Checked, failure: string | undefined, ejection: number): void {
    const isHealthy = failure === undefined;
    const { healthyThreshold = 2, unhealthyThreshold = 3 } = this.#options;
    const before = this.#streaks.get(checked);
    const streak: Streak = {
      contrary: isHealthy === checked.isUp ? 0 : (before?.contrary ?? 0) + 1,
      ejection,
      successes: isHealthy ? ((before?.ejection === ejection && before.successes) || 0) + 1 : 0,
    };
    this.#streaks.set(checked, streak);
    const isChanged = streak.contrary >= (isHealthy ? healthyThreshold : unhealthyThreshold);
    const isOfEjection = ejection !== 0 && ejection === checked.ejection;
    const isReturned = isOfEjection && streak.successes >= healthyThreshold;
    if (!isChanged && !isReturned) return;
    const count = isChanged ? streak.contrary : streak.successes;
    if (isReturned) checked.endEjection();
    if (isChanged) {
      checked.isUp = isHealthy;
      streak.contrary = 0;
    }
    const checks = count === 1 ? "a check" : `${count} checks`;
    const last = count === 1 ? ":" : ", last:";
    this.#onChange(checked, `${checks} ${isHealthy ? "succeeded" : `failed${last} ${failure}`}`);
  }

  /** Sends one check. Resolves to what is wrong with the response; undefined if it shows that the upstream works. */
  async #ask(
    target: TargetAddress,
    transport: Transport,
    scope: Scope,
  ): Promise<string | undefined> {
    const { path, headers = {} } = this.#options;
    const upstream = parseTarget(target);
    const request: UpstreamRequest = {
      upstream,
      method: "GET",
      path: joinTarget(upstream, path),
      headers: Object.entries(headers).flatMap(([name, value]) =>
        value === null ? [] : [name, value],
      ),
      host: undefined,
      body: null,
      contentLength: undefined,
    };
    const response = await transport.send(request, scope);
    try {
      return await this.#findWrong(response);
    } finally {
      discardBody(response);
    }
  }

  async #findWrong({ status, body }: UpstreamResponse): Promise<string | undefined> {
    const { status: expected, body: text } = this.#options;
    const isGood =
      typeof expected === "function"
        ? refusePromise(expected(status), "status")
        : status === expected || (expected === undefined && status >= 200 && status < 300);
    if (!isGood) return `${status}`;
    if (text === undefined) return undefined;
    const isFound = body !== null && (await contains(body.stream(), text));
    return isFound ? undefined : `${status} with another body`;
  }
}

/** Whether the beginning of a body contains a text. */
async function contains(stream: ReadableStream<Uint8Array>, searched: string): Promise<boolean> {
  const reader = stream.getReader();
  const decoder = new TextDecoder();
  let text = "";
  let isOver = false;
  while (!isOver && text.length < MAX_BODY && !text.includes(searched)) {
    const { done, value } = await reader.read();
    isOver = done;
    text += decoder.decode(value, { stream: true });
  }
  await reader.cancel();
  return text.includes(searched);
}

function checkTimeout(timeout: number): ProxyError {
  return new ProxyError("http_response_timeout", {
    message: `no complete response within ${timeout} ms`,
  });
}
