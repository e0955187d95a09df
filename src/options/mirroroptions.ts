import { bytes, callback, either, object, record, text } from "../schema/kinds.ts";
import { defaultsOf, isRecord, type Schema } from "../schema/schema.ts";
import { parseTarget, type TargetAddress } from "../target/target.ts";

/** Which requests are copied to a mirror. */
export interface MirrorSettings {
  /** Where to send the copies: an origin without a path, or an app in this process. */
  target: TargetAddress;
  /**
   * The share of requests to copy, chosen at random: above 0, up to 1.
   * @default 1
   */
  sample?: number;
  /**
   * Maximum bytes of the body of a request to copy. A request with a longer body is not copied.
   * @default 65536
   */
  maxBody?: number;
}

/** The options about copies of requests for another upstream. */
export interface MirrorOptions {
  /**
   * Sends a copy of each request to another upstream as well, and discards the responses to the copies.
   *
   * The client does not wait for a copy, and does not notice its failure: a copy is sent when the request has been sent with
   * its whole body, and at most 100 copies run at the same time; further requests are not copied then. A copy ends after
   * `timeout`, or after 60 s if that is `0`. It has the method, the path, the header fields (with cookies and credentials)
   * and the body that the target gets, after `onRequest`. It passes no interceptors, is not repeated, and follows no
   * redirects; upgrades are not copied. On Workers, a copy is lost when the response is over, unless `fetch` of a proxy gets
   * the Worker's third argument, or `waitUntil` is set.
   * @example { target: "http://127.0.0.1:4001", sample: 0.1 }
   */
  mirror?: string | MirrorSettings;
  /**
   * Keeps a Worker running until the copy for `mirror` has been sent; set it for calls of `proxyFetch`. The `fetch` of
   * a proxy takes this function from the third argument of the Worker's handler. It has no effect on other runtimes.
   * @example (promise) => ctx.waitUntil(promise)
   */
  waitUntil?: (promise: Promise<unknown>) => void;
}

const ORIGIN = 'use an origin such as "http://127.0.0.1:4001"';

/**
 * Returns what is wrong with the target of a mirror; undefined if nothing is. For an object, this is the message of
 * `parseTarget`, because one of the object's options may be wrong.
 */
function checkOrigin(value: unknown): string | undefined {
  try {
    const { basePath, query } = parseTarget(value as TargetAddress);
    return basePath === "" && query === "" ? undefined : ORIGIN;
  } catch (wrong) {
    return isRecord(value) ? (wrong as Error).message.replace(/^fetchway: /, "") : ORIGIN;
  }
}

function isShare(value: unknown): boolean {
  return typeof value === "number" && value > 0 && value <= 1;
}

const settingsSchema: Schema<MirrorSettings, "sample" | "maxBody"> = {
  target: { kind: { check: checkOrigin } },
  sample: { kind: object(isShare, "use a number above 0, up to 1"), default: 1 },
  maxBody: { kind: bytes, default: 65_536 },
};

export const mirrorDefaults: Required<Pick<MirrorSettings, "sample" | "maxBody">> =
  defaultsOf(settingsSchema);

export const mirrorSchema: Schema<MirrorOptions> = {
  mirror: {
    kind: either(
      `${ORIGIN}, or an object with it as \`target\``,
      text(/^https?:\/\/[^/?#@\s]+\/?$/),
      record(settingsSchema),
    ),
  },
  waitUntil: { kind: callback },
};
