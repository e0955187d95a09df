import proxy from "@fastify/http-proxy";
import fastify from "fastify";
import { hostname, port, target } from "./_start.ts";

const app = fastify();
await app.register(proxy, { upstream: target, websocket: true });
await app.listen({ port, host: hostname });
