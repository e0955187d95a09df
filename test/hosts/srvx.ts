import { serve } from "../_serve.ts";
import { announce, bindFetch, reportError } from "./_announce.ts";

await announce(
  async (setup) => (await serve("srvx", { fetch: bindFetch(setup), error: reportError })).port,
);
