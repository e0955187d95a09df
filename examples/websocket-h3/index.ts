/**
 * Runs an h3 app on Node that forwards requests below `/api`, and all WebSockets, to an upstream:
 *
 *     node index.ts
 */
import { createProxy } from "fetchway";
import { H3, serve } from "h3";

const proxy = createProxy({ target: "http://127.0.0.1:4000" });

const app = new H3().get("/health", () => "ok").all("/api/**", (event) => proxy.fetch(event.req));

const port = Number(process.env["PORT"] ?? 3000);
// The plugin forwards all WebSockets. To forward only some, omit it and call `proxy.attach(server, { match })`.
serve(app, { port, hostname: "127.0.0.1", plugins: [proxy.plugin] });
