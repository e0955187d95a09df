/** TLS connections to an upstream resume the session of the previous connection. */
import { Agent, createServer } from "node:https";
import type { TLSSocket } from "node:tls";
import { expect, test } from "vitest";
import { createProxy } from "../../../../runtimes/node.ts";
import { sessionOptions } from "../../../../runtimes/sockets/tlssessions.ts";
import { useApps } from "../../../helpers/apps.ts";
import { makeCertificate } from "../../../helpers/certificate.ts";
import { until } from "../../../helpers/wait.ts";

const apps = useApps();
const certificate = await makeCertificate();

test("the second connection to an upstream resumes the session of the first", async () => {
  const resumed: boolean[] = [];
  const sockets = new Set<TLSSocket>();
  const server = createServer(certificate, (_, res) => {
    res.setHeader("connection", "close");
    res.end("ok");
  });
  server.on("secureConnection", (socket) => {
    resumed.push(socket.isSessionReused());
    sockets.add(socket);
    socket.on("close", () => sockets.delete(socket));
  });
  const port = await apps.listen(server);
  const proxy = createProxy({
    target: { url: `https://localhost:${port}`, tls: { ca: certificate.cert } },
  });
  for (let count = 0; count < 2; count++) {
    const response = await proxy.fetch(new Request("http://proxy.test/"));
    expect(await response.text()).toBe("ok");
    await until(() => sockets.size === 0, "the connection's end");
  }
  expect(resumed).toEqual([false, true]);
  await proxy.close();
});

test("`sessionOptions` returns the key only if the agent can cache sessions", () => {
  expect(sessionOptions(new Agent(), "key")).toEqual({ _agentKey: "key" });
  expect(sessionOptions({}, "key")).toEqual({});
});
