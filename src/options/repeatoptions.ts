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
} from "./kinds.ts";
import { defaultsOf, type Flags, type Schema } from "./schema.ts";

/** When a request is sent again. An option that is left out has its default. */
export interface RetryOptions {
  /** The maximum number of attempts after the first one. */
  attempts?: number;
  /** The methods whose requests may be sent again. */
  methods?: readonly string[];
  /** Statuses from 400 on whose responses are discarded for another attempt; the client gets the last response. */
  statusCodes?: readonly number[];
  /** Milliseconds to wait before each further attempt. */
  delay?: number;
}

const retrySchema: Schema<RetryOptions, keyof RetryOptions> = {
  attempts: {
    kind: whole(0, "use a whole number, 0 for none"),
    default: 1,
  },
  methods: { kind: names, default: ["GET", "HEAD", "OPTIONS", "TRACE", "PUT", "DELETE"] },
  statusCodes: { kind: statusCodes, default: [] },
  delay: { kind: milliseconds, default: 0 },
};

export const retryDefaults: Required<RetryOptions> = defaultsOf(retrySchema);

/** The options about sending a request more than once. */
export interface RepeatOptions {
  /**
   * Follows redirects instead of handing them to the client: `true` follows up to 5, a number up to that many.
   *
   * Methods change as the Fetch standard says. `authorization`, `cookie`, `proxy-authorization` and the fields of `headers`
   * are left out from the first change of origin on. The client gets a redirect that may not be followed: beyond the
   * number, to a target that `redirectTargets` refuses, or with a body that was not kept.
   * @default false
   * @see https://fetch.spec.whatwg.org/#http-redirect-fetch
   */
  followRedirects?: boolean | number;
  /**
   * Where redirects may lead that are followed: to the origin of the hop before, to `"any"`, or where the predicate
   * returns true.
   *
   * With `"any"` the upstream can send this proxy anywhere it can reach, including metadata services and private networks,
   * but never from `https:` to `http:`. A predicate alone decides about every hop. This option is refused without
   * `followRedirects`, since it would do nothing; with `followRedirects: false` it is allowed.
   * @default "same-origin"
   * @example (url) => url.protocol === "https:" && url.hostname.endsWith(".example.com")
   */
  redirectTargets?: "same-origin" | "any" | ((url: URL) => boolean);
  /**
   * Bytes of a request body that are kept while it streams, to be sent again by a 307 or 308 that is followed or by a
   * `retry` that is set. A longer body is sent once. Nothing is kept where neither option is set.
   * @default 1048576
   */
  replayLimit?: number;
  /**
   * Sends a request again when nothing of a response has arrived (an idle connection was closed, or a new one refused), or
   * when the status is in `statusCodes`; `false` never does. Only requests whose method is in `methods` and whose body is
   * still available are sent again.
   *
   * A response that is discarded for another attempt is lost. A `POST` in `methods` may be carried out twice.
   * @default { "attempts": 1, "methods": ["GET", "HEAD", "OPTIONS", "TRACE", "PUT", "DELETE"], "statusCodes": [], "delay": 0 }
   * @example { attempts: 2, statusCodes: [503], delay: 100 }
   * @see https://www.rfc-editor.org/rfc/rfc9110#section-9.2.2
   */
  retry?: false | RetryOptions;
}

export const repeatSchema: Schema<RepeatOptions, keyof RepeatOptions> = {
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
};

export const repeatFlags: Flags<RepeatOptions> = {
  heading: "Redirects and retries",
  flags: {
    followRedirects: "follow redirects, up to so many; true for 5",
    redirectTargets: { value: "<where>", help: "where to: same-origin, or any" },
    replayLimit: "bytes kept of a body, to send again",
    retry: "send again what a stale connection lost",
  },
};
