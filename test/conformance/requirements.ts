/** What the RFCs require of a gateway: the list behind docs/conformance.md. */
import { rfc6455 } from "./rfc6455.ts";
import { rfc7239 } from "./rfc7239.ts";
import { rfc9110 } from "./rfc9110.ts";
import { rfc9110Fields } from "./rfc9110.fields.ts";
import { rfc9112 } from "./rfc9112.ts";
import { rfc9113 } from "./rfc9113.ts";
import { rfc9209 } from "./rfc9209.ts";

/** What a requirement can wait for: features that are being built. */
export type Feature =
  | "Expect"
  | "HTTP/2"
  | "interim responses"
  | "odd methods"
  | "trailers"
  | "upgrades";

/** One requirement. Its id is the RFC, the section, and a short name. */
export interface Requirement {
  readonly level: "MUST" | "MUST NOT" | "SHOULD" | "SHOULD NOT";
  /** The part that a gateway plays when the requirement counts for it. */
  readonly role:
    | "client"
    | "gateway"
    | "intermediary"
    | "proxy"
    | "recipient"
    | "sender"
    | "server";
  /** What has to be done, or not to be done, in our own words. */
  readonly says: string;
  /** The option that it holds with, where it does not hold without. */
  readonly option?: string;
  /** What has to be built first. */
  readonly open?: Feature;
  /** Why it holds on no host. */
  readonly gap?: string;
  /** Why it is no requirement of this library. */
  readonly foreign?: string;
}

/** What a marker can name. */
export type RequirementId =
  | keyof typeof rfc9110
  | keyof typeof rfc9110Fields
  | keyof typeof rfc9112
  | keyof typeof rfc9113
  | keyof typeof rfc6455
  | keyof typeof rfc7239
  | keyof typeof rfc9209;

/** All requirements, by id, in the order of the RFCs in the ledger. */
export const requirements: Readonly<Record<RequirementId, Requirement>> = {
  ...rfc9110,
  ...rfc9110Fields,
  ...rfc9112,
  ...rfc9113,
  ...rfc6455,
  ...rfc7239,
  ...rfc9209,
};
