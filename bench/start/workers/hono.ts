/** A Worker with Hono's own proxy. */
import { proxy } from "hono/proxy";
import { answer, type Worker } from "./answer.ts";

const worker: Worker = { fetch: answer((request, target) => proxy(target, request)) };
export default worker;
