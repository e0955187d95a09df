import { createProxyServer } from "httpxy";
import { start, target } from "./_start.ts";

const proxy = createProxyServer({ target });
await start("node", (req, res) => void proxy.web(req, res).catch(() => res.destroy()));
