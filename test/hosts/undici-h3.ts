/** A host on h3 with the entry `fetchway/undici`. */
import * as entry from "../../runtimes/undici.ts";
import { serve } from "../helpers/serve.ts";
import { attach } from "./_attach.ts";
import { announce, bindFetch } from "./_announce.ts";

await announce(async (setup) => attach(setup, await serve("h3", bindFetch(setup, entry)), entry));
