/** The requirements of the RFCs on a gateway, from which docs/conformance.md is generated. */
import { rfc6455 } from "./rfc6455.ts";
import { rfc7239 } from "./rfc7239.ts";
import { rfc8441 } from "./rfc8441.ts";
import { rfc9110 } from "./rfc9110.ts";
import { rfc9110Fields } from "./rfc9110.fields.ts";
import { rfc9112 } from "./rfc9112.ts";
import { rfc9113 } from "./rfc9113.ts";
import { rfc9209 } from "./rfc9209.ts";

/** A requirement. Its id consists of the RFC, the section, and a short name. */
export interface Requirement {
  readonly level: "MUST" | "MUST NOT" | "SHOULD" | "SHOULD NOT";
  /** The role in which a gateway must meet the requirement. */
  readonly role:
    | "client"
    | "gateway"
    | "intermediary"
    | "proxy"
    | "recipient"
    | "sender"
    | "server";
  /** The requirement as one sentence in our own words. */
  readonly says: string;
  /** The option that must be set for the requirement to hold. */
  readonly option?: string;
  /** The reason why the requirement holds on no host. */
  readonly gap?: string;
  /** The reason why the requirement does not apply to this library. */
  readonly foreign?: string;
}

/** The ids of all requirements, which markers name. */
export type RequirementId =
  | keyof typeof rfc9110
  | keyof typeof rfc9110Fields
  | keyof typeof rfc9112
  | keyof typeof rfc9113
  | keyof typeof rfc8441
  | keyof typeof rfc6455
  | keyof typeof rfc7239
  | keyof typeof rfc9209;

/** All requirements by id, in the order in which docs/conformance.md lists the RFCs. */
export const requirements: Readonly<Record<RequirementId, Requirement>> = {
  ...rfc9110,
  ...rfc9110Fields,
  ...rfc9112,
  ...rfc9113,
  ...rfc8441,
  ...rfc6455,
  ...rfc7239,
  ...rfc9209,
};
