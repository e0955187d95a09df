import { createProxyMiddleware } from "http-proxy-middleware";
import { start, target } from "./_start.ts";

const middleware = createProxyMiddleware({ target });
await start("node", (req, res) => void middleware(req, res));
