import { serve } from "@hono/node-server";
import { Hono } from "hono";
import { proxyFetch } from "#proxy";
import { hostname, port, target } from "./_serve.ts";

const app = new Hono().all("*", (c) => proxyFetch(c.req.raw, target));
serve({ fetch: app.fetch, port, hostname });
