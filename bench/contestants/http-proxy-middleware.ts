import { createProxyMiddleware } from "http-proxy-middleware";
import { listen, target } from "./_serve.ts";

const middleware = createProxyMiddleware({ target });
listen((req, res) => void middleware(req, res));
