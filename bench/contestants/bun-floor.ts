/** The control on Bun. */
import { type BunHandler, getEnv, serveBun } from "../../test/helpers/serve.bun.ts";
import { forwardByHand } from "./_byhand.ts";

const target = getEnv("TARGET") ?? "";

const handler: BunHandler = {
  fetch(request, server) {
    const { address = "" } = server.requestIP(request) ?? {};
    return forwardByHand(request, target, address);
  },
};

serveBun(handler, Number(getEnv("PORT")));
