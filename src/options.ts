/**
 * The options of a proxy, of its connections and of several upstreams as data: `fetchway/options`, for programs that
 * read options from elsewhere, such as a command line or a config file.
 * @module
 */
export { cutCredentials, quoteInput } from "./misuse.ts";
export { ranges } from "./options/forwardingoptions.ts";
export { mirrorKind } from "./options/mirrorsettings.ts";
export { poolSchema } from "./options/pooloptions.ts";
export { proxySchema } from "./options/proxyoptions.ts";
export {
  bytes,
  choice,
  either,
  limitFrom,
  milliseconds,
  text,
  toggle,
  whole,
} from "./schema/kinds.ts";
export { nearest } from "./schema/nearest.ts";
export {
  type Check,
  defaultsOf,
  fillIn,
  findWrong,
  isRecord,
  type Kind,
  type KindName,
  type Schema,
  type Table,
} from "./schema/schema.ts";
export { upstreamSchema } from "./upstreams/balanceoptions.ts";
