/** srvx with every fast path left: a Request made by hand, a Response made of the proxy's. */
import { createProxy } from "#proxy";
import { serve } from "../_serve.ts";
import { announce, reportError } from "./_announce.ts";

await announce(async ({ target, options }) => {
  const proxy = createProxy({ target, ...options });
  const { port, server } = await serve("srvx", {
    async fetch(request) {
      const { url, method, body, signal, runtime } = request;
      const headers = new Headers([...request.headers]);
      // What a Request cannot be made of.
      if (!URL.canParse(url)) return new Response(null, { status: 400 });
      if (method === "TRACE") return new Response(null, { status: 501 });
      const made = new Request(url, {
        method,
        headers,
        signal,
        ...(body && { body, duplex: "half" as const }),
      });
      // As Hono's server does: whose connection it is cannot be seen on a Request.
      const response = await proxy.fetch(made, { incoming: runtime?.node?.req });
      const { status, statusText } = response;
      return new Response(response.body, { status, statusText, headers: response.headers });
    },
    error: reportError,
  });
  proxy.attach(server);
  return port;
});
