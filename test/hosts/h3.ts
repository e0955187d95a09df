import { serve } from "../_serve.ts";
import { announce, bindFetch } from "./_announce.ts";

await announce(async (setup) => (await serve("h3", bindFetch(setup))).port);
