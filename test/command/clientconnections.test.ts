import { once } from "node:events";
import { createServer, type IncomingMessage } from "node:http";
import { connect as connectHttp2, createSecureServer, type ServerHttp2Session } from "node:http2";
import { connect, type Socket } from "node:net";
import { text } from "node:stream/consumers";
import { describe, expect, test } from "vitest";
import {
  type ClientConnection,
  ClientConnections,
  groupOf,
} from "../../command/limits/clientconnections.ts";
import { handleAsRequest } from "../../runtimes/node/internals/upgradechoice.ts";
import { Overload } from "../../command/limits/overload.ts";
import { makeCertificate } from "../helpers/certificate.ts";
import { listen } from "../helpers/serve.ts";
import { until, within } from "../helpers/wait.ts";

describe("the limit of connections for each address", () => {
  test.each([
    ["127.0.0.1", "127.0.0.1"],
    ["2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"],
    ["2001:db8:1:2::1", "2001:db8:1:2::/64"],
    ["2001:db8::1", "2001:db8:0:0::/64"],
    ["2001:db8::1:2:3:4:5", "2001:db8:0:1::/64"],
    ["::1", "0:0:0:0::/64"],
    ["fe80::1%eth0", "fe80:0:0:0::/64"],
    ["", ""],
  ])("the client address %s counts as %s", (address, group) => {
    expect(groupOf(address)).toBe(group);
  });
});

test("the stop of a server ignores an HTTP/2 session that is destroyed while its socket is open", async () => {
  const server = createSecureServer(await makeCertificate());
  const unlimited = { maxConnections: Infinity, maxPerAddress: Infinity };
  const connections = new ClientConnections(server, unlimited, () => {});
  const sessions: ServerHttp2Session[] = [];
  server.on("session", (session) => sessions.push(session)).on("sessionError", () => {});
  const port = await listen(server);
  const clients = [0, 1].map(() =>
    connectHttp2(`https://127.0.0.1:${port}`, { rejectUnauthorized: false }).on("error", () => {}),
  );
  await until(() => sessions.length === 2, "the sessions");
  const [destroyed] = sessions as [ServerHttp2Session];
  const goingAway = clients.map((client) => once(client, "goaway"));
  const connection = [...connections.all].find(({ session }) => session === destroyed);
  destroyed.destroy();
  await until(() => connections.all.size === 1, "the end of the destroyed session's connection");
  // Restore the connection, as if its socket were still sending: such a socket closes later than its session.
  connections.all.add(connection as ClientConnection);
  await connections.stopAccepting();
  await Promise.any(goingAway);
  for (const client of clients) client.destroy();
});

test("pipelined requests no longer count as running once their client has disconnected", async () => {
  let count = 0;
  const server = createServer(() => void count++);
  const unlimited = { maxConnections: Infinity, maxPerAddress: Infinity };
  const connections = new ClientConnections(server, unlimited, () => {});
  const client = connect(await listen(server), "127.0.0.1");
  client.write("GET / HTTP/1.1\r\nHost: a\r\n\r\n".repeat(3));
  await until(() => count === 3, "the requests");
  expect(connections.running.size).toBe(3);
  client.destroy();
  await until(() => connections.all.size === 0, "the end");
  await until(() => connections.running.size === 0, "the end of the requests");
  server.close();
});

test("a connection whose request for an upgrade is handled as an ordinary request counts once", async () => {
  const server = createServer((_, res) => void res.write("a"));
  server.on("upgrade", (req: IncomingMessage, socket: Socket, head: Buffer) =>
    handleAsRequest(server, req, socket, head),
  );
  const unlimited = { maxConnections: Infinity, maxPerAddress: Infinity };
  const connections = new ClientConnections(server, unlimited, () => {});
  const client = connect(await listen(server), "127.0.0.1");
  client.write("GET / HTTP/1.1\r\nHost: a\r\nConnection: upgrade\r\nUpgrade: h2c\r\n\r\n");
  await once(client, "data");
  expect(connections.all.size).toBe(1);
  client.destroy();
  await until(() => connections.all.size === 0, "the end");
  server.close();
});

test("an HTTP/2 connection that is accepted during an overload gets GOAWAY with its first response", async () => {
  const server = createSecureServer(await makeCertificate(), (_, res) => void res.end("a"));
  const unlimited = { maxConnections: Infinity, maxPerAddress: Infinity };
  const connections = new ClientConnections(server, unlimited, () => {});
  const port = await listen(server);
  const nothing = { countRunning: () => 0, shed() {}, close() {}, async reopen() {}, report() {} };
  connections.overload = new Overload("127.0.0.1", port, nothing);
  connections.overload.isActive = true;
  const client = connectHttp2(`https://127.0.0.1:${port}`, { rejectUnauthorized: false });
  const goingAway = once(client, "goaway");
  expect(await text(client.request())).toBe("a");
  expect((await within(goingAway, "GOAWAY")).slice(0, 2)).toEqual([0, 1]);
  server.close();
});
