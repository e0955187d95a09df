/**
 * A program for every runtime: it sends requests whose method `onRequest` sets, through the runtime's `fetch` and to an app in
 * this process. Arguments: the upstream's origin, and the methods. It prints the statuses and the methods that the app gets.
 */
import process from "node:process";
import { createProxy } from "#fetchway";
import { createTransport } from "../../../runtimes/fetch.ts";

const [origin = "", ...methods] = process.argv.slice(2);
const app = { fetch: ({ method }: Request) => new Response(method) };
for (const target of [origin, app]) {
  for (const method of methods) {
    const proxy = createProxy({
      target,
      transport: createTransport(),
      log: false,
      onRequest: (draft) => void (draft.method = method),
    });
    const response = await proxy.fetch(new Request("http://a.test/"));
    const seen = response.status === 200 ? await response.text() : response.status;
    console.log(JSON.stringify([method, seen]));
  }
}
process.exit(0);
