import type { ProxyError } from "../error.ts";

import type { RequestEnd, WaitChange } from "./observationoptions.ts";
import type { Interceptor } from "../transport/port.ts";
import { callback, interceptors, record } from "../schema/kinds.ts";
import type { Schema } from "../schema/schema.ts";

/** A request that is about to be sent. `onRequest` may change each of its members, but may not add further members. */
export interface RequestDraft {
  /** The method, as it goes into the request line. */
  method: string;
  /**
   * The path and query in origin-form. They begin with the base path and the query of the target. A missing slash at the
   * beginning is added.
   */
  path: string;
  /**
   * The header fields. Hop-by-hop fields are removed already, and the forwarding fields and those of the option `headers`
   * are set. A field `host` sets the `Host` of the request to the upstream; a client that is a `fetch` cannot
   * send it, and the call rejects.
   *
   * A field that the hook does not change is sent as the client has sent it: at its place, with its name in the same case, and
   * in as many lines. Changed fields follow at the end.
   */
  headers: Headers;
  /**
   * The body to send instead of the request's own body: `undefined` keeps the request's own body, and `null` sends no
   * body. A short stream that ends within a few milliseconds of its first chunk is sent with its length, any other stream
   * without (in HTTP/1.1 with the chunked coding).
   */
  body: string | Uint8Array | ReadableStream<Uint8Array> | null | undefined;
}

/** The result of a hook: a response to send to the client instead, or nothing. */
export type MaybeResponse = Response | void | Promise<Response | void>;

/** The options with functions of the app that run during an exchange. */
export interface HookOptions {
  /**
   * Runs before the request is sent, and may change a draft of it; if the hook returns a `Response`, the client gets that, and
   * nothing is sent. If the hook sets a field for some requests only, put its name into `filterHeaders`: otherwise, a client
   * can send that field with the other requests.
   * @example (draft) => { draft.headers.set("x-request-id", crypto.randomUUID()); }
   */
  onRequest?: (draft: RequestDraft, request: Request) => MaybeResponse;
  /**
   * Runs with the upstream's response, after the proxy has removed and rewritten header fields; if it returns a `Response`,
   * the client gets that instead. It does not run for gateway errors.
   *
   * Where the response has a `content-encoding`, `text()` returns compressed bytes; to change a body, use `transformText` of
   * `fetchway/bodies`.
   * @example (response) => { response.headers.delete("server"); }
   */
  onResponse?: (response: Response, request: Request) => MaybeResponse;
  /**
   * Runs for each interim response of the upstream (1xx, except 101), such as 103 (Early Hints), after the proxy has removed
   * hop-by-hop fields. It only observes the response.
   *
   * Servers on Node send interim responses to the client, with or without this hook, except 100 (Continue), which the proxy
   * itself uses; other servers cannot send them. The hook runs before `onResponse`, for each attempt and each redirect that is
   * followed. It does not run where the transport is a `fetch`, which hides interim responses.
   * @example (status, headers) => console.log(status, headers.get("link"))
   * @see https://www.rfc-editor.org/rfc/rfc9110#section-15.2
   */
  onInformational?: (status: number, headers: Headers, request: Request) => void | Promise<void>;
  /**
   * Runs once for each request, when its response or its tunnel is over, with a report: status, upstream, attempts, bytes,
   * times, and the error if there was one. It only observes; an exception or a rejection of the hook is printed.
   * @example ({ method, path, status, timings }) => console.log(method, path, status, timings.total)
   */
  onRequestEnd?: (event: RequestEnd) => void;
  /**
   * Runs when requests begin to wait for an upstream (`wait`), and when none waits for it any longer. It only observes; an
   * exception or a rejection of the hook is printed. `describeWait` of `fetchway/errors` makes a line of the report.
   * @example (change) => console.log(describeWait(change))
   */
  onWait?: (change: WaitChange) => void;
  /**
   * Runs when no response of the upstream can be forwarded; if it returns a `Response`, the client gets that instead of the
   * gateway error. `explainError` of `fetchway/errors` says what happened, where and what to do: log that, but do not send it
   * to the client, because it contains addresses, as `error.cause` may.
   *
   * It also runs when another hook throws, with that exception as `error.cause`. If `onError` then returns nothing, the
   * call rejects with that exception. If `onError` throws, the call rejects with the exception of `onError`.
   * @example (error) => new Response("back soon", { status: error.status })
   */
  onError?: (error: ProxyError, request: Request) => MaybeResponse;
  /**
   * Functions that wrap the sending of a request, the first one outermost: those of `request` wrap the whole request,
   * including redirects and retries; those of `attempt` wrap each attempt to send it to one upstream.
   *
   * An interceptor gets the request after all changes by the proxy: it can undo them, send a request twice, or keep the
   * chunks of bodies. `attempt` also runs for the origins that redirects lead to: check `request.upstream` before you add
   * a credential. An exception of an interceptor goes to `onError`, like that of a hook.
   * @example { attempt: [(next) => (request, scope) => next(sign(request), scope)] }
   */
  interceptors?: {
    readonly request?: readonly Interceptor[];
    readonly attempt?: readonly Interceptor[];
  };
}

const interceptorSchema: Schema<NonNullable<HookOptions["interceptors"]>> = {
  request: { kind: interceptors },
  attempt: { kind: interceptors },
};

export const hookSchema: Schema<HookOptions> = {
  onRequest: { kind: callback },
  onResponse: { kind: callback },
  onInformational: { kind: callback },
  onRequestEnd: { kind: callback },
  onWait: { kind: callback },
  onError: { kind: callback },
  interceptors: {
    kind: record(interceptorSchema, "use an object such as { attempt: [(next) => next] }"),
  },
};
