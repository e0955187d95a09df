/** Passes a Location reference through the rewriting of a proxy. */
import { compileLocationRewrite } from "../../../src/response/location.ts";
import { parseTarget, type TargetAddress } from "../../../src/target/target.ts";
import type { UpstreamRequest } from "../../../src/transport/message.ts";
import { fakeRequest, TARGET } from "../../helpers/fakes.ts";

export interface Setup {
  rewrite?: true | Record<string, string>;
  prefix?: string;
  target?: TargetAddress;
  host?: string;
  followed?: UpstreamRequest;
}

export function locate(reference: string, setup: Setup = {}): string {
  const { rewrite = true, prefix = "", target = TARGET, host, followed } = setup;
  const hop = fakeRequest({ upstream: parseTarget(target), host });
  const location = compileLocationRewrite(rewrite, prefix);
  return location?.(reference, hop, followed) ?? "nothing to call";
}
