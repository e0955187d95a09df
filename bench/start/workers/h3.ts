/** A Worker with h3's own proxy. */
import { H3, proxyRequest } from "h3";
import { answer, type Worker } from "./answer.ts";

const worker: Worker = {
  fetch: answer((request, target) =>
    new H3().all("/**", (event) => proxyRequest(event, target)).fetch(request),
  ),
};
export default worker;
