import { ProxyError } from "#proxy";
import { serve } from "../_serve.ts";
import { attach } from "./_attach.ts";
import { announce, bindFetch } from "./_announce.ts";

// @hono/node-server logs each response body that fails; anything else on stderr is a fault.
const complain = console.error;
console.error = (...data: unknown[]) => {
  if (!(data[0] instanceof ProxyError)) complain(...data);
};

await announce(async (setup) => attach(setup, await serve("hono", bindFetch(setup))));
