import { defaultsOf, type Schema } from "../schema/schema.ts";
import { type ClientOptions, clientSchema } from "./clientoptions.ts";
import { type ForwardingOptions, forwardingSchema } from "./forwardingoptions.ts";
import { type HeaderOptions, headerSchema } from "./headeroptions.ts";
import { type HookOptions, hookSchema } from "./hookoptions.ts";
import { type LimitOptions, limitSchema } from "./limitoptions.ts";
import { type MirrorOptions, mirrorSchema } from "./mirroroptions.ts";
import { type ObservationOptions, observationSchema } from "./observationoptions.ts";
import { type PathOptions, pathSchema } from "./pathoptions.ts";
import { type RepeatOptions, repeatSchema, type RetryOptions } from "./repeatoptions.ts";
import { type RewriteOptions, rewriteSchema } from "./rewriteoptions.ts";

/** Options of `proxyFetch` and `createProxy`. */
export interface ProxyOptions
  extends
    HeaderOptions,
    ForwardingOptions,
    PathOptions,
    LimitOptions,
    RepeatOptions,
    RewriteOptions,
    MirrorOptions,
    ObservationOptions,
    HookOptions,
    ClientOptions {}

type Groups = typeof headerSchema &
  typeof forwardingSchema &
  typeof pathSchema &
  typeof limitSchema &
  typeof repeatSchema &
  typeof rewriteSchema &
  typeof mirrorSchema &
  typeof observationSchema &
  typeof hookSchema &
  typeof clientSchema;

/** The names of the options that have a default. */
type Preset = {
  [Name in keyof Groups]: Groups[Name] extends { readonly default: unknown } ? Name : never;
}[keyof Groups];

/** Every option of a proxy, in the order of the interface. */
export const proxySchema: Schema<ProxyOptions, Preset> = {
  ...headerSchema,
  ...forwardingSchema,
  ...pathSchema,
  ...limitSchema,
  ...repeatSchema,
  ...rewriteSchema,
  ...mirrorSchema,
  ...observationSchema,
  ...hookSchema,
  ...clientSchema,
};

/** The defaults of a proxy. */
export const defaults: Readonly<Required<Pick<ProxyOptions, Preset>>> & {
  readonly retry: Required<RetryOptions>;
} = defaultsOf(proxySchema) as Required<Pick<ProxyOptions, Preset>> & {
  retry: Required<RetryOptions>;
};
