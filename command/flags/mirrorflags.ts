/** The option of a route that copies requests to another upstream, as data for `mirrorTo` of `fetchway/mirror`. */
import type { MirrorSettings } from "#fetchway/mirror";
import { mirrorKind, type Schema } from "#fetchway/options";
import type { Flags } from "./flagtable.ts";

/** The option `mirror` of a route. */
export interface MirrorOption {
  /**
   * Sends a copy of each request to this origin as well, and discards the responses; see `mirrorTo` of `fetchway/mirror`.
   * @example { target: "http://127.0.0.1:4001", sample: 0.1 }
   */
  mirror?: string | MirrorSettings;
}

export const routeMirrorSchema: Schema<MirrorOption> = { mirror: { kind: mirrorKind } };

export const mirrorFlags: Flags<MirrorOption> = {
  heading: "Mirroring",
  flags: { mirror: { value: "<url>", help: "send a copy of each request there as well" } },
};
