import { serve } from "@hono/node-server";
import { Hono } from "hono";
import { proxy } from "hono/proxy";
import { hostname, port, target } from "./_serve.ts";

const app = new Hono().all("*", (c) => {
  const { pathname, search } = new URL(c.req.url);
  return proxy(target + pathname + search, c.req);
});
serve({ fetch: app.fetch, port, hostname });
