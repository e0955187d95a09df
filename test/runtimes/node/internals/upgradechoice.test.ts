/** Upgrades with and without `shouldUpgradeCallback`, which Node's servers lack before Node 22.21 and 24.9. */
import { once } from "node:events";
import { createServer, type Server } from "node:http";
import { createServer as createSecureServer } from "node:https";
import type { Server as NetServer } from "node:net";
import { describe, expect, test } from "vitest";
import { type AttachOptions, createProxy, type NodeProxy } from "../../../../runtimes/node.ts";
import { chooseUpgrades } from "../../../../runtimes/node/internals/upgradechoice.ts";
import { useApps } from "../../../helpers/apps.ts";
import { makeCertificate } from "../../../helpers/certificate.ts";
import { echoMessages, handshake, offer, sayHello } from "../../../helpers/handshake.ts";
import { settled } from "../../../helpers/wait.ts";
import { chunk, type Header, lastChunk, request } from "../../../helpers/wire.ts";

const apps = useApps();
const { upstream } = apps;

const takesSocket: AttachOptions = { match: ({ url }) => url === "/socket" };

/** Attaches a proxy while the server's `shouldUpgradeCallback` is hidden; the server itself keeps its default. */
function attachWithoutChoice(proxy: NodeProxy, server: NetServer, options?: AttachOptions): void {
  const choosing = server as { shouldUpgradeCallback?: unknown };
  const { shouldUpgradeCallback } = choosing;
  choosing.shouldUpgradeCallback = undefined;
  proxy.attach(server, options);
  choosing.shouldUpgradeCallback = shouldUpgradeCallback;
}

/** Whether this Node parses the body of an upgrade, as Node 26 does. If so, the request cannot be passed back to the server. */
async function parsesBodies(): Promise<boolean> {
  const server = createServer();
  const handedOver = once(server, "upgrade");
  const port = await apps.listen(server);
  const client = await apps.connect(port);
  client.send(request("POST", "/", offer("h2c"), "body"));
  const [, , head] = (await handedOver) as [unknown, unknown, Buffer];
  return head.length === 0;
}

describe("without `shouldUpgradeCallback`", () => {
  async function serve(options?: AttachOptions): Promise<number> {
    const proxy = createProxy({ target: upstream.url });
    const server = createServer(proxy.nodeHandler);
    attachWithoutChoice(proxy, server, options);
    return apps.listen(server);
  }

  test("WebSockets are carried", async () => {
    echoMessages(upstream);
    expect(await sayHello(`ws://127.0.0.1:${await serve()}/`)).toBe("hello");
  });

  test.each([
    ["a length", ["Content-Length", "11"], ["hello", " world"]],
    ["chunks", ["Transfer-Encoding", "chunked"], [chunk("hello"), chunk(" world"), lastChunk]],
  ] as [string, Header, (string | Buffer)[]][])(
    "a request for h2c whose body has %s is forwarded, or gets 501 if Node parses the bodies of upgrades",
    async (_, framing, pieces) => {
      const port = await serve();
      const client = await apps.connect(port);
      const fields: Header[] = [...offer("h2c"), ["X-A", "\u00e9"], ["x-a", "2"]];
      if (await parsesBodies()) {
        for (const sent of [pieces, []]) {
          const refused = await apps.connect(port);
          refused.send(request("POST", "/", [...fields, framing]), ...sent);
          expect((await refused.read()).status).toBe(501);
          expect(await refused.rest()).toHaveLength(0);
        }
        return expect(upstream.calls).toEqual([]);
      }
      for (const [at] of ["first", "second"].entries()) {
        client.send(request("POST", `/${at}`, [...fields, framing]), pieces[0] ?? "");
        await settled(() => upstream.calls.length);
        client.send(...pieces.slice(1));
        expect(await client.read()).toMatchObject({ status: 200, text: "hello world" });
        expect(upstream.calls[at]?.all("x-a")).toEqual(["\u00e9", "2"]);
        expect(upstream.calls[at]?.all("upgrade")).toEqual([]);
      }
      client.send(request("GET", "/last"));
      expect((await client.read()).status).toBe(200);
    },
  );

  test("a pipelined request for h2c is answered after the request before it", async () => {
    const client = await apps.connect(await serve());
    const body = (await parsesBodies()) ? "" : "second";
    let release = (): void => {};
    upstream.script = async (call) => {
      await call.done;
      if (call.target !== "/first") return call.reply(200, [], call.body);
      release = () => call.reply(200, [], "first");
    };
    client.send(request("GET", "/first"), request("POST", "/second", offer("h2c"), body));
    await upstream.call();
    await settled(() => upstream.calls.length);
    release();
    expect((await client.read()).text).toBe("first");
    expect(await client.read()).toMatchObject({ status: 200, text: body });
  });

  test("a handshake that `match` excludes gets a single 501, and its connection ends before the next request", async () => {
    const client = await apps.connect(await serve(takesSocket));
    client.send(request("GET", "/elsewhere", handshake), request("GET", "/smuggled"));
    const answer = await client.read();
    expect(answer).toMatchObject({ status: 501, text: "Not Implemented: http_request_error\n" });
    expect(answer.get("proxy-status")).toBe("fetchway; error=http_request_error");
    expect(await client.rest()).toHaveLength(0);
    expect(upstream.calls).toEqual([]);
  });

  test("over TLS, a request for h2c with a body gets 501", async () => {
    const certificate = await makeCertificate();
    const proxy = createProxy({ target: upstream.url });
    const server = createSecureServer(certificate, proxy.nodeHandler);
    attachWithoutChoice(proxy, server);
    const port = await apps.listen(server);
    const { request: send } = await import("node:https");
    const status = await new Promise((resolve, reject) => {
      const headers = { connection: "Upgrade", upgrade: "h2c", "content-length": "4" };
      send({ port, host: "localhost", method: "POST", headers, ca: certificate.cert }, (answer) => {
        answer.resume();
        resolve(answer.statusCode);
      })
        .on("error", reject)
        .end("body");
    });
    expect(status).toBe(501);
  });
});

describe("with `shouldUpgradeCallback`", () => {
  const choosing = (callback?: (req: { url: string }) => boolean) => {
    const asked = { shouldUpgradeCallback: callback } as object;
    return Object.assign(createServer(), callback && asked) as Server & {
      shouldUpgradeCallback?: (req: object) => boolean;
    };
  };

  test("Node's default function is replaced by a function that accepts other upgrades only if other code listens", () => {
    const server = choosing();
    if (server.shouldUpgradeCallback === undefined) return;
    let others = 0;
    server.on("upgrade", () => {});
    chooseUpgrades(
      server,
      (_, byServer) => byServer,
      () => others,
    );
    expect(server.shouldUpgradeCallback({})).toBe(false);
    others = 1;
    expect(server.shouldUpgradeCallback({})).toBe(true);
  });

  test("the app's own function still decides about requests that the proxy does not take", () => {
    const server = choosing(({ url }) => url === "/app");
    chooseUpgrades(
      server,
      ({ url }, byServer) => url === "/ours" || byServer,
      () => 0,
    );
    const ask = (url: string): unknown => server.shouldUpgradeCallback?.({ url });
    expect(["/app", "/ours", "/other"].map(ask)).toEqual([true, true, false]);
  });
});
