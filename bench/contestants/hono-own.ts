import { Hono } from "hono";
import { proxy } from "hono/proxy";
import { start, target } from "./_start.ts";

const app = new Hono().all("*", (c) => {
  const { pathname, search } = new URL(c.req.url);
  return proxy(target + pathname + search, c.req);
});
await start("hono", app);
