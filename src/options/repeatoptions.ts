import {
  bytes,
  callback,
  choice,
  either,
  milliseconds,
  names,
  off,
  record,
  statusCodes,
  toggle,
  whole,
} from "../schema/kinds.ts";
import { defaultsOf, type Schema } from "../schema/schema.ts";

/** When a request is sent again. An option that is left out has its default. */
export interface RetryOptions {
  /**
   * Maximum number of times that a request is sent again, to the same or to another upstream. An attempt at another
   * upstream does not count if nothing of the request was sent to the previous upstream, or that upstream has not
   * processed it; attempts that do not count try each upstream at most once.
   */
  attempts?: number;
  /** The methods whose requests may be sent again. */
  methods?: readonly string[];
  /**
   * Statuses of 400 or more after which the response is discarded for another attempt; the client gets the last response.
   */
  statusCodes?: readonly number[];
  /** Milliseconds to wait before each further attempt. */
  delay?: number;
}

const retrySchema: Schema<RetryOptions, keyof RetryOptions> = {
  attempts: {
    kind: whole(0, "use a whole number, 0 for none"),
    default: 1,
  },
  methods: { kind: names, default: ["GET", "HEAD", "OPTIONS", "PUT", "DELETE", "QUERY"] },
  statusCodes: { kind: statusCodes, default: [] },
  delay: { kind: milliseconds, default: 0 },
};

export const retryDefaults: Required<RetryOptions> = defaultsOf(retrySchema);

/** The options about sending a request more than once. */
export interface RepeatOptions {
  /**
   * Follows redirects instead of passing them on to the client: `true` follows up to 5 redirects; a number sets another
   * maximum.
   *
   * Methods change as the Fetch standard specifies. At the first change of origin, `authorization`, `cookie`,
   * `proxy-authorization`, and the fields that `headers`, `onRequest` or `interceptors.request` set are dropped. The client
   * gets a redirect that is not followed: one above the number, one to a target that `redirectTargets` refuses, one in a loop,
   * or one that needs a request body that was not kept.
   * @default false
   * @example 3
   * @see https://fetch.spec.whatwg.org/#http-redirect-fetch
   */
  followRedirects?: boolean | number;
  /**
   * Which redirects may be followed: `"same-origin"` for those to the origin of the previous request, `"any"` for all,
   * or a predicate that returns true for the URL to follow.
   *
   * With `"any"`, the upstream can make this proxy send requests to any address that the proxy can reach, including
   * metadata services and private networks, but never from `https:` to `http:`. A predicate decides alone about each
   * redirect, even from `https:` to `http:`. This option is refused without `followRedirects`, because it would do nothing;
   * with `followRedirects: false` it is allowed.
   * @default "same-origin"
   * @example (url) => url.protocol === "https:" && url.hostname.endsWith(".example.com")
   */
  redirectTargets?: "same-origin" | "any" | ((url: URL) => boolean);
  /**
   * Maximum bytes of a request body to keep while it streams, so that a redirect or a `retry` can send it again. A
   * longer body is sent only once. No body is kept unless `followRedirects` or `retry` is set.
   * @default 1048576
   */
  replayLimit?: number;
  /**
   * Sends a request again when no byte of a response has arrived (an idle connection was closed, or a new one refused),
   * or when the status is in `statusCodes`; `false` never sends it again. Only requests whose method is in `methods`
   * and whose body is still available are sent again. A request with any method is sent to another of several upstreams
   * if nothing of it was sent, and is sent again if an HTTP/2 upstream reports that it has not processed the request.
   *
   * A response that is discarded for another attempt is lost. A `POST` in `methods` may be carried out twice.
   * @default { "attempts": 1, "methods": ["GET", "HEAD", "OPTIONS", "PUT", "DELETE", "QUERY"], "statusCodes": [], "delay": 0 }
   * @example { attempts: 2, statusCodes: [503], delay: 100 }
   * @see https://www.rfc-editor.org/rfc/rfc9110#section-9.2.2
   */
  retry?: false | RetryOptions;
  /**
   * Milliseconds until an attempt that has no response headers is abandoned for another one: on a new connection, or to
   * another of several upstreams. It applies to requests that `retry` may send again, and not to the last attempt. With
   * several upstreams, an attempt is abandoned only if the retry budget allows it and another upstream takes the request.
   * Both attempts may be carried out. No limit by default.
   */
  attemptTimeout?: number;
  /**
   * Milliseconds for which a request waits for an upstream that refuses connections, whose Unix socket is missing, or whose
   * name cannot be found now, because an upstream in this state is usually restarting. After that time, the client gets 503
   * with `Retry-After`. No request waits by default, or with `0`.
   *
   * Requests with any method wait, because no byte of them was sent, and their bodies stay unread. To find out whether the
   * upstream is back, the proxy sends one more request after each pause of 50 to 250 ms; the others follow gradually when the
   * upstream is back. At most 1,024 requests wait for one upstream. If there are more, the client address with the most gets
   * 503 for its newest request. `timeout` is paused during the wait, and refused attempts do not count towards `retry`.
   *
   * If the upstream's name cannot be found, requests wait only if the name is that of a fixed `target` of `createProxy`, or of
   * `balance`, and only if the name servers do not answer, or the upstream has answered before. A request whose connection
   * broke is also sent again, if `retry` allows it. A request that an HTTP/2 upstream has not processed is sent again until
   * more than 128 KiB of its body were read. These bytes are kept for that, and the rest of the body waits.
   *
   * The wait ends when the client disconnects. Node does not notice that while a large body is unread, and Deno does not while
   * any body is unread; the request then waits until its time is over. The option is refused on Workers and in
   * `fetchway/fetch`, whose HTTP clients do not report refused connections.
   * @example 15_000
   */
  wait?: number;
}

export const repeatSchema: Schema<
  RepeatOptions,
  Exclude<keyof RepeatOptions, "attemptTimeout" | "wait">
> = {
  followRedirects: {
    kind: either("use true, false or a whole number of redirects", toggle, whole(0)),
    default: false,
  },
  redirectTargets: {
    kind: either(
      'use "same-origin", "any" or a predicate on the URL',
      choice("same-origin", "any"),
      callback,
    ),
    default: "same-origin",
  },
  replayLimit: { kind: bytes, default: 1_048_576 },
  retry: {
    kind: either("use false, or an object such as { attempts: 2 }", off, record(retrySchema)),
    default: retryDefaults,
  },
  attemptTimeout: { kind: milliseconds },
  wait: { kind: milliseconds },
};
