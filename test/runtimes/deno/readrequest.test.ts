import { expect, test } from "vitest";
import { readRequest } from "../../../runtimes/deno/readrequest.ts";
import { until } from "../../helpers/wait.ts";

/** Creates a request that counts how often its signal is read. */
function createRequest(): { request: Request; controller: AbortController; reads: () => number } {
  const controller = new AbortController();
  let reads = 0;
  const request = new Request("http://a.test/");
  Object.defineProperty(request, "signal", {
    get() {
      reads++;
      return controller.signal;
    },
  });
  return { request, controller, reads: () => reads };
}

test("both listeners of a mirrored request, which has two exchanges, are notified when the client disconnects", async () => {
  const { request, controller, reads } = createRequest();
  const notified = new Set<number>();
  const incoming = readRequest(request, undefined, {});
  const listeners = [0, 1].map((id) => ({ handleEvent: () => void notified.add(id) }));
  for (const listener of listeners) incoming.listen(listener);
  await until(() => reads() > 1, "the signal read for both");
  controller.abort();
  expect(notified).toEqual(new Set([0, 1]));
});

test("`clientKey` is made from the peer's address, or from the address that the option `clientAddress` returns", () => {
  const { request } = createRequest();
  const info = { remoteAddr: { hostname: "192.0.2.7" } };
  expect(readRequest(request, info, {}).clientKey).toBe("192.0.2.7");
  const clientAddress = (): string => "2001:db8::1";
  expect(readRequest(request, info, { clientAddress }).clientKey).toBe("2001:db8:0:0/64");
});
