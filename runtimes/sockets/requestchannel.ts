import type { TracingChannel } from "node:diagnostics_channel";
import { namedAuthorityOf, type Tracing } from "../../src/exchange/observation.ts";
import type { RequestEnd } from "../../src/options/observationoptions.ts";
import type { Incoming } from "../../src/request/incoming.ts";

type DiagnosticsChannel = typeof import("node:diagnostics_channel");

/**
 * The name of the channel. Tools subscribe to `tracingChannel("fetchway.request")` of `node:diagnostics_channel`.
 *
 * Each exchange publishes the same message object several times: on `start` when the request has arrived, on `end` when the
 * synchronous part of the exchange has returned, and on `asyncStart` and `asyncEnd` when its response or its tunnel is over. If
 * there was no response, or its body broke off, the exchange publishes the message on `error` before the last two.
 */
const NAME = "fetchway.request";

/** The message of an exchange on the channel `fetchway.request`. */
export interface RequestTrace {
  /** The client's method. */
  readonly method: string;
  /** The client's path and query. */
  readonly path: string;
  /** The authority that the client has named, such as `shop.example:8080`. */
  readonly authority: string;
  /** The IP address of the client, where the server shows it. */
  readonly clientAddress: string | undefined;
  /** The client's request, made at the first access. A subscriber that reads the body takes it away from the proxy. */
  readonly request: Request;
  /** The argument of `onRequestEnd`; undefined until the exchange is over. */
  readonly result: RequestEnd | undefined;
  /**
   * Why there was no response, or why its body broke off; undefined until the exchange is over, and if the response was
   * complete.
   */
  readonly error: unknown;
}

class Message implements RequestTrace {
  readonly method: string;
  readonly path: string;
  readonly authority: string;
  readonly clientAddress: string | undefined;
  result: RequestEnd | undefined;
  error: unknown;
  readonly #incoming: Incoming;

  constructor(incoming: Incoming) {
    this.#incoming = incoming;
    this.method = incoming.method;
    this.path = incoming.path;
    this.authority = namedAuthorityOf(incoming);
    this.clientAddress = incoming.address;
    this.result = undefined;
    this.error = undefined;
  }

  get request(): Request {
    return this.#incoming.request();
  }
}

class RequestChannel implements Tracing {
  readonly channel: { readonly hasSubscribers: boolean };
  readonly #tracing: TracingChannel<unknown, RequestTrace>;

  constructor({ tracingChannel }: DiagnosticsChannel) {
    const tracing = tracingChannel<unknown, RequestTrace>(NAME);
    this.#tracing = tracing;
    // Bun's tracing channels do not show whether they have subscribers.
    this.channel = typeof tracing.hasSubscribers === "boolean" ? tracing : new Subscribers(tracing);
  }

  trace<Result>(incoming: Incoming, run: (end: (event: RequestEnd) => void) => Result): Result {
    const { start, end, asyncStart, asyncEnd, error } = this.#tracing;
    const message = new Message(incoming);
    const finish = (event: RequestEnd): void => {
      message.result = event;
      message.error = event.error;
      if (event.error !== undefined) error.publish(message);
      asyncStart.runStores(message, () => asyncEnd.publish(message));
    };
    return start.runStores(message, () => {
      try {
        return run(finish);
      } finally {
        end.publish(message);
      }
    });
  }
}

/** Shows whether any channel of a tracing channel has subscribers. */
class Subscribers {
  readonly #tracing: TracingChannel<unknown, RequestTrace>;

  constructor(tracing: TracingChannel<unknown, RequestTrace>) {
    this.#tracing = tracing;
  }

  get hasSubscribers(): boolean {
    const { start, end, asyncStart, asyncEnd, error } = this.#tracing;
    return (
      start.hasSubscribers ||
      asyncEnd.hasSubscribers ||
      error.hasSubscribers ||
      end.hasSubscribers ||
      asyncStart.hasSubscribers
    );
  }
}

/** Returns the channel of this runtime; undefined where there is no `node:diagnostics_channel`. */
export function findRequestChannel(): Tracing | undefined {
  const { process } = globalThis as {
    process?: { getBuiltinModule?(name: "node:diagnostics_channel"): DiagnosticsChannel };
  };
  const module = process?.getBuiltinModule?.("node:diagnostics_channel");
  return typeof module?.tracingChannel === "function" ? new RequestChannel(module) : undefined;
}
