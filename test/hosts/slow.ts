/**
 * A host on srvx that uses none of the proxy's fast paths: it constructs a new Request, and a new Response from the
 * proxy's response.
 */
import { createProxy } from "#fetchway";
import { serve } from "../helpers/serve.ts";
import { announce, reportError } from "./_announce.ts";

await announce(async ({ target, options }) => {
  const proxy = createProxy({ target, ...options });
  const { port, server } = await serve("srvx", {
    async fetch(request) {
      const { url, method, body, signal, runtime } = request;
      const headers = new Headers([...request.headers]);
      // The Request constructor would throw for these URLs and methods.
      if (!URL.canParse(url)) return new Response(null, { status: 400 });
      if (method === "TRACE") return new Response(null, { status: 501 });
      const made = new Request(url, {
        method,
        headers,
        signal,
        ...(body && { body, duplex: "half" as const }),
      });
      // A constructed Request has no reference to its connection, so pass Node's request in the context, as Hono's
      // server does.
      const response = await proxy.fetch(made, { incoming: runtime?.node?.req });
      const { status, statusText } = response;
      return new Response(response.body, { status, statusText, headers: response.headers });
    },
    error: reportError,
  });
  proxy.attach(server);
  return port;
});
