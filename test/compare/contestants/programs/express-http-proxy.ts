/** express-http-proxy, as in the example of its README. */
import { createRequire } from "node:module";
import express, { type Handler } from "express";
import { options, start, target } from "../../../../bench/contestants/_start.ts";

// The package express-http-proxy contains no types.
const proxy = createRequire(import.meta.url)("express-http-proxy") as (
  host: string,
  options: object,
) => Handler;
const app = express();
app.use(proxy(target, options));
await start("node", app);
