/** Rules about any proxy that Fetchway keeps only with an option, so that the suite cannot test them on every host. */
import { expect } from "vitest";
import { rfc } from "../conformance/rfc.ts";
import { request } from "../helpers/wire.ts";
import type { Tools } from "../suite/_suite.ts";

export const rules = {
  async "RFC 9110 §7.6.3: a request is forwarded with Via"(t: Tools): Promise<void> {
    rfc("9110-7.6.3-via");
    await t.ask(request("GET", "/"));
    expect(t.upstream.calls[0]?.all("via").join()).toMatch(/^1\.1 \S/);
  },
};

export type OwnRule = keyof typeof rules;
