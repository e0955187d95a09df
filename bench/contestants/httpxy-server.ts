import { createProxyServer } from "httpxy";
import { listen, target } from "./_serve.ts";

const proxy = createProxyServer({ target });
listen((req, res) => void proxy.web(req, res).catch(() => res.destroy()));
