import { serve } from "srvx";
import { portOfSrvx, quietly } from "../_srvx.ts";
import { announce, bindFetch, reportError } from "./_announce.ts";

await announce((setup) =>
  portOfSrvx(serve({ fetch: bindFetch(setup), error: reportError, ...quietly })),
);
