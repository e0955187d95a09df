/** The control on Deno. */
import { getEnv, serveDeno } from "../../test/helpers/serve.deno.ts";
import { forwardByHand } from "./_byhand.ts";

const target = getEnv("TARGET") ?? "";

serveDeno(
  (request, info) => {
    const { remoteAddr } = info as { remoteAddr: { hostname: string } };
    return forwardByHand(request, target, remoteAddr.hostname);
  },
  Number(getEnv("PORT")),
);
