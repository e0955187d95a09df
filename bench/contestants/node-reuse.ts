import { createProxy } from "#proxy";
import { listen, target } from "./_serve.ts";

listen(createProxy({ target, pool: { reuseBuffers: true } }).nodeHandler);
