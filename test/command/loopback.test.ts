/**
 * The command on machines with one loopback address, or with servers that listen on only one of the two loopback
 * addresses.
 */
import { createServer } from "node:http";
import { networkInterfaces } from "node:os";
import { afterEach, describe, expect, test } from "vitest";
import { openOn, suggestHosts } from "../../command/serve/loopback.ts";
import { Command, programs } from "./_command.ts";
import { listen } from "../helpers/serve.ts";

describe("the server of the command", () => {
  const missing = (code: string): Error => Object.assign(new Error(code), { code });

  test.each(["EADDRNOTAVAIL", "EAFNOSUPPORT"])(
    "listens on ::1 if 127.0.0.1 is missing: %s",
    async (code) => {
      const open = async (host: string): Promise<string> => {
        if (host === "127.0.0.1") throw missing(code);
        return host;
      };
      expect(await openOn("127.0.0.1", open)).toBe("::1");
    },
  );

  test.each([
    ["127.0.0.1", "EADDRINUSE"],
    ["192.0.2.1", "EADDRNOTAVAIL"],
  ])("tries no second address for the host %s and the error %s", async (host, code) => {
    const tried: string[] = [];
    const opening = openOn(host, async (each) => {
      tried.push(each);
      throw missing(code);
    });
    await expect(opening).rejects.toThrow(code);
    expect(tried).toEqual([host]);
  });
});

test.each([
  ["127.0.0.1", "0.0.0.0 or ::"],
  ["0.0.0.0", "127.0.0.1 or ::"],
  ["192.0.2.1", "127.0.0.1 or 0.0.0.0"],
])(
  "the message about a host that cannot be used suggests only other hosts: %s",
  (failed, suggested) => {
    expect(suggestHosts(failed)).toBe(suggested);
  },
);

const hasIPv6 = Object.values(networkInterfaces()).some((each) =>
  each?.some(({ address }) => address === "::1"),
);
const hosts = hasIPv6 ? ["127.0.0.1", "::1"] : ["127.0.0.1"];
if (!hasIPv6) test.skip("a port alone reaches a server on ::1 (this machine has no ::1)", () => {});

let proxy: Command | undefined;
afterEach(() => proxy?.kill());

describe.each(Object.keys(programs) as (keyof typeof programs)[])("on %s", (runtime) => {
  test.each(hosts)(
    "a target that is only a port reaches a server that listens on %s only",
    async (host) => {
      await using opened = new AsyncDisposableStack();
      const server = createServer((req, res) => res.end(`${req.headers.host}`));
      const port = await listen(server, 0, host);
      opened.defer(() => server.close().closeAllConnections());
      proxy = new Command(`${port} --port 0`, [], programs[runtime]);
      const origin = await proxy.origin();
      for (let count = 0; count < 3; count++) {
        expect(await (await fetch(origin)).text()).toBe(`localhost:${port}`);
      }
    },
  );
});
