import { createProxyMiddleware } from "http-proxy-middleware";
import { options, start, target } from "./_start.ts";

const middleware = createProxyMiddleware({ target, changeOrigin: true, ...options });
const server = await start("node", (req, res) => void middleware(req, res));
server.on("upgrade", middleware.upgrade);
