import { bytes, either, object, record, text } from "../schema/kinds.ts";
import { defaultsOf, isRecord, type Kind, type Schema } from "../schema/schema.ts";
import { parseTarget, type TargetAddress } from "../target/target.ts";

/** Where copies of requests are sent, and which requests are copied. */
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

const ORIGIN = 'use an origin such as "http://127.0.0.1:4001"';

/**
 * Returns the error message for the target of a mirror; undefined if the target is valid. If `parseTarget` refuses an object,
 * the result is its message, which names the wrong option of the object.
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

/** The argument of `mirrorTo`. */
export const mirrorKind: Kind<string | MirrorSettings> = either(
  `${ORIGIN}, or an object with it as \`target\``,
  text(/^https?:\/\/[^/?#@\s]+\/?$/),
  record(settingsSchema),
);
