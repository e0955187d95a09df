/** Remix's fetch-proxy on its node-fetch-server, as in the examples of their READMEs. */
import { createFetchProxy } from "@remix-run/fetch-proxy";
import { createRequestListener } from "@remix-run/node-fetch-server";
import { options, start, target } from "../../../../bench/contestants/_start.ts";

const proxy = createFetchProxy(target);
await start(
  "node",
  createRequestListener((request) => proxy(request, options)),
);
