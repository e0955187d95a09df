/** Hostile cases that need more than one upstream. */
import { afterEach, expect, test } from "vitest";
import { createProxy } from "#fetchway";
import { Upstream } from "../helpers/upstream.ts";

const upstreams: Upstream[] = [];
afterEach(async () => {
  await Promise.all(upstreams.splice(0).map((upstream) => upstream.stop()));
});

async function startUpstream(port: number): Promise<Upstream> {
  const upstream = new Upstream();
  await upstream.listen(port);
  upstreams.push(upstream);
  return upstream;
}

/** Starts two upstreams. The port of one is a prefix of the port of the other, as in 3100 and 31001. */
async function listenAlike(): Promise<[short: Upstream, long: Upstream]> {
  for (let port = 2000 + (process.pid % 3000); port < 6500; port++) {
    try {
      return [await startUpstream(port), await startUpstream(port * 10 + 1)];
    } catch {
      // One of the two ports is in use: try the next pair.
    }
  }
  throw new Error("no two such ports are free");
}

test("GHSA-v574-6498-x57v: upstreams with similar names share no connection", async () => {
  const [short, long] = await listenAlike();
  await using proxies = new AsyncDisposableStack();
  const targets = [`${short.url}/1/private`, `${long.url}/private`, `${short.url}/1`];
  const chosen = createProxy({ target: ({ url }) => targets[Number(url.at(-1))] as string });
  proxies.defer(() => chosen.close());
  for (const at of [0, 1, 2, 1, 0, 2]) {
    const response = await chosen.fetch(new Request(`http://proxy.test/${at}`));
    expect(response.status).toBe(200);
    await response.arrayBuffer();
  }
  expect(short.calls.map((call) => call.target)).toEqual([
    "/1/private/0",
    "/1/2",
    "/1/private/0",
    "/1/2",
  ]);
  expect(long.calls.map((call) => call.target)).toEqual(["/private/1", "/private/1"]);
  for (const call of [...short.calls, ...long.calls]) {
    expect(call.get("host")).toBe(short.calls.includes(call) ? short.authority : long.authority);
  }
});
