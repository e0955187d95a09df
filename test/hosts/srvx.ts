import { serve } from "srvx";
import { portOfSrvx, quietly } from "../_srvx.ts";
import { announce, bindFetch } from "./_announce.ts";

await announce((setup) => portOfSrvx(serve({ fetch: bindFetch(setup), ...quietly })));
