import { once } from "node:events";
import type { AddressInfo } from "node:net";
import { serve } from "@hono/node-server";
import { Hono } from "hono";
import { ProxyError } from "#proxy";
import { announce, bindFetch } from "./_announce.ts";

// @hono/node-server logs each response body that fails; anything else on stderr is a fault.
const complain = console.error;
console.error = (...data: unknown[]) => {
  if (!(data[0] instanceof ProxyError)) complain(...data);
};

await announce(async (setup) => {
  const fetch = bindFetch(setup);
  const app = new Hono().all("*", (c) => fetch(c.req.raw));
  const server = serve({ fetch: app.fetch, port: 0, hostname: "127.0.0.1" });
  await once(server, "listening");
  return (server.address() as AddressInfo).port;
});
