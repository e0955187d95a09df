import { createProxy } from "#proxy";
import { createUndiciTransport } from "../../runtimes/undici.ts";
import { listen, target } from "./_serve.ts";

listen(createProxy({ target, transport: createUndiciTransport() }).nodeHandler);
