/** Bytes above 0x7f are unchanged in a response head that is sent before the first chunk of the body. */
import { expect, test, vi } from "vitest";
import { flushHead } from "../../../runtimes/node/noderesponse.ts";
import { useApps } from "../../helpers/apps.ts";
import { request } from "../../helpers/wire.ts";

const apps = useApps();

test.each(["caf\xe9 \xff\x80", "plain"])(
  "a response head with the field value %j is sent immediately, with unchanged bytes",
  async (value) => {
    const end = Promise.withResolvers<void>();
    let written: unknown[][] = [];
    const port = await apps.serve("node", (_, res) => {
      written = vi.spyOn(res, "write").mock.calls;
      const headers = ["X-Name", value];
      res.writeHead(200, headers);
      flushHead(res, headers);
      void end.promise.then(() => res.end("body"));
    });
    const client = await apps.connect(port);
    client.send(request("GET", "/"));
    const head = await client.readHead();
    expect(head.get("x-name")).toBe(value);
    end.resolve();
    expect((await client.readBody(head)).text).toBe("body");
    // `flushHead` writes an empty chunk only for a head with bytes above 0x7f. It sends other heads with `flushHeaders`,
    // because middleware that compresses sends nothing for an empty chunk.
    expect(written).toHaveLength(value === "plain" ? 0 : 1);
  },
);
