import { Hono } from "hono";
import { proxy } from "hono/proxy";
import { options, start, target } from "./_start.ts";

const app = new Hono().all("*", (c) => {
  const { pathname, search } = new URL(c.req.url);
  return proxy(target + pathname + search, { raw: c.req.raw, ...options });
});
await start("hono", app);
