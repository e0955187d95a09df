import { serve } from "../helpers/serve.ts";
import { attach } from "./_attach.ts";
import { announce, bindFetch, reportError } from "./_announce.ts";

await announce(async (setup) =>
  attach(setup, await serve("srvx", { fetch: bindFetch(setup), error: reportError })),
);
