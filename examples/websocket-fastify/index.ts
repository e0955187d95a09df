/**
 * Runs a Fastify app that forwards requests and WebSockets below `/api` to an upstream:
 *
 *     node index.ts
 */
import { createProxy } from "fetchway";
import fastify from "fastify";

const proxy = createProxy({ target: "http://127.0.0.1:4000" });

const app = fastify();
app.get("/health", () => "ok");
app.addHook("onRequest", (request, reply, done) => {
  if (!request.url.startsWith("/api/")) return done();
  reply.hijack();
  proxy.nodeHandler(request.raw, reply.raw);
});
proxy.attach(app.server, { match: (req) => req.url?.startsWith("/api/") ?? false });

const port = Number(process.env["PORT"] ?? 3000);
console.log(await app.listen({ port, host: "127.0.0.1" }));
