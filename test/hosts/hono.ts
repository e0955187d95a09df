import { ProxyError } from "#fetchway";
import { serve } from "../_serve.ts";
import { attach } from "./_attach.ts";
import { announce, bindFetch } from "./_announce.ts";

// @hono/node-server logs each response body that fails. Drop these logs, because any output on stderr counts as a
// fault.
const complain = console.error;
console.error = (...data: unknown[]) => {
  if (!(data[0] instanceof ProxyError)) complain(...data);
};

await announce(async (setup) => attach(setup, await serve("hono", bindFetch(setup))));
