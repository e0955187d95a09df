import { serve } from "../helpers/serve.ts";
import { attach } from "./_attach.ts";
import { announce, bindFetch } from "./_announce.ts";

await announce(async (setup) => attach(setup, await serve("h3", bindFetch(setup))));
