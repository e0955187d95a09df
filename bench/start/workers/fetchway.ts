/** A Worker with Fetchway. */
import { proxyFetch } from "../../../runtimes/workerd.ts";
import { answer, type Worker } from "./answer.ts";

const worker: Worker = { fetch: answer((request, target) => proxyFetch(request, target)) };
export default worker;
