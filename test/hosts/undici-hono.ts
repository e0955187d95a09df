/** A host on Hono with the entry `fetchway/undici`. */
import * as entry from "../../runtimes/undici.ts";
import { serve } from "../helpers/serve.ts";
import { attach } from "./_attach.ts";
import { announce, bindFetch, dropBodyFailures } from "./_announce.ts";

dropBodyFailures();
await announce(async (setup) => attach(setup, await serve("hono", bindFetch(setup, entry)), entry));
