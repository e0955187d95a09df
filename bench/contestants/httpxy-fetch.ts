import { proxyFetch } from "httpxy";
import { serve } from "srvx";
import { hostname, port, target } from "./_serve.ts";

serve({ fetch: (request) => proxyFetch(target, request), port, hostname, silent: true });
