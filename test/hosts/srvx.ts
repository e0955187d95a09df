import { serve } from "srvx";
import { proxyFetch } from "#proxy";
import { portOfSrvx, quietly } from "../_srvx.ts";
import { announce, reportError } from "./_announce.ts";

await announce(({ target, options }) =>
  portOfSrvx(
    serve({
      fetch: (request) => proxyFetch(request, target, options),
      error: reportError,
      ...quietly,
    }),
  ),
);
