/** Pipelined requests on a version of Node that has renamed the property with the current response of a connection. */
import { describe, expect, test } from "vitest";
import { createProxy } from "../../../../runtimes/node.ts";
import { responseOn } from "../../../../runtimes/node/internals/pipelining.ts";
import { useApps } from "../../../helpers/apps.ts";
import { hideOnSocket } from "../_hidden.ts";
import { until } from "../../../helpers/wait.ts";
import { request } from "../../../helpers/wire.ts";

const apps = useApps();
const { upstream } = apps;

describe("pipelined requests on a connection that does not show its current response", () => {
  test.each([undefined, {}, "response"])(
    "are sent immediately and answered in order if the property is %j",
    async (current) => {
      const proxy = createProxy({ target: upstream.url });
      const port = await apps.serve("node", (req, res) => {
        const other = hideOnSocket(req, "_httpMessage");
        Object.assign(other.socket, { _httpMessage: current });
        proxy.nodeHandler(other, res);
      });
      const methods = ["PUT", "GET", "DELETE", "GET"];
      upstream.script = async (call) => {
        // Without the property the proxy does not know the order, so it sends all requests immediately.
        await until(() => upstream.calls.length === methods.length, "all at the upstream at once");
        call.reply(200, [], call.target);
      };
      const client = await apps.connect(port);
      client.send(...methods.map((method, at) => request(method, `/${at}`)));
      for (const at of methods.keys()) {
        expect(await client.read()).toMatchObject({ status: 200, text: `/${at}` });
      }
      await proxy.close();
    },
  );
});

test("this version of Node shows the current response of a connection, and none between requests", async () => {
  const shown: unknown[] = [];
  const port = await apps.serve("node", (req, res) => {
    const { socket } = req;
    shown.push(responseOn(socket) === res);
    res.on("close", () => shown.push(responseOn(socket)));
    res.end();
  });
  await apps.ask(port, request("GET", "/"));
  await until(() => shown.length === 2, "the response's end");
  expect(shown).toEqual([true, null]);
});
