/**
 * Requests whose `Headers` are not based on Node's parsed headers: the proxy sends the fields that the handler sees.
 */
import { expect, test } from "vitest";
import { createProxy, proxyFetch } from "../../../../runtimes/node.ts";
import { useApps } from "../../../helpers/apps.ts";
import { request } from "../../../helpers/wire.ts";

const apps = useApps();
const { upstream } = apps;

test("the upstream gets the changed fields of a `Request` that the app constructs from the server's request", async () => {
  const port = await apps.serve("srvx", {
    fetch(web) {
      const { runtime } = web as unknown as { runtime: object };
      const headers = new Headers(web.headers);
      headers.set("x-changed", "here");
      headers.delete("x-secret");
      const copy = new Request(web.url, { headers });
      return proxyFetch(Object.assign(copy, { runtime }), upstream.url);
    },
  });
  const fields: [string, string][] = [
    ["X-Secret", "s"],
    ["X-Changed", "there"],
  ];
  expect((await apps.ask(port, request("GET", "/", fields))).status).toBe(200);
  const call = apps.only();
  expect([call.get("x-changed"), call.get("x-secret")]).toEqual(["here", undefined]);
});

test("`headers` of Node's request is the same object before and after the proxy reads it", async () => {
  const port = await apps.serve("srvx", {
    async fetch(web) {
      const req = web.runtime?.node?.req as { headers: object };
      const { headers } = req;
      const response = await proxyFetch(web, upstream.url);
      response.headers.set("x-same", String(req.headers === headers));
      return response;
    },
  });
  expect((await apps.ask(port, request("GET", "/"))).get("x-same")).toBe("true");
});

test("a header value that middleware changed in Node's request is sent, even if no header was added or removed", async () => {
  const proxy = createProxy({ target: upstream.url });
  const port = await apps.serve("node", (req, res) => {
    req.headers["x-user"] = "alice";
    proxy.nodeHandler(req, res);
  });
  await apps.ask(port, request("GET", "/", [["X-User", "mallory"]]));
  expect(apps.only().all("x-user")).toEqual(["alice"]);
  await proxy.close();
});
