import { createRequire } from "node:module";
import type { IncomingMessage, ServerResponse } from "node:http";
import { start, target } from "./_start.ts";

// The types of fast-proxy describe exports that the package does not have.
const create = createRequire(import.meta.url)("fast-proxy") as (options: { base: string }) => {
  proxy: (req: IncomingMessage, res: ServerResponse, path: string, options: object) => void;
};
const { proxy } = create({ base: target });
await start("node", (req, res) => proxy(req, res, req.url ?? "/", {}));
