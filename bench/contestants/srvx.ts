import { serve } from "srvx";
import { proxyFetch } from "#proxy";
import { hostname, port, target } from "./_serve.ts";

serve({ fetch: (request) => proxyFetch(request, target), port, hostname, silent: true });
