/** Several listening sockets on one port accept connections faster, and do not hide that the port is already in use. */
import { execFileSync } from "node:child_process";
import { once } from "node:events";
import { readFileSync } from "node:fs";
import { createServer } from "node:http";
import { connect, type Server } from "node:net";
import { text } from "node:stream/consumers";
import { afterEach, describe, expect, test } from "vitest";
import { countListeners } from "../../command/limits/clientlimits.ts";
import { canSharePort, claimPort, listenAlso } from "../../command/serve/listeners.ts";
import { command, upstream } from "./_command.ts";
import { findPort } from "../helpers/serve.ts";
import { pause, until, within } from "../helpers/wait.ts";

const open: Server[] = [];
afterEach(() => {
  for (const each of open.splice(0)) each.close();
});

/** Listens on a free port. */
async function start(server: Server, options: object = {}): Promise<number> {
  server.listen({ port: 0, host: "127.0.0.1", ...options });
  open.push(server);
  await once(server, "listening");
  return (server.address() as { port: number }).port;
}

/** Blocks the event loop while clients connect, and counts the turns until the server has accepted all of them. */
async function countTurns(server: Server, port: number, count: number): Promise<number> {
  let accepted = 0;
  server.on("connection", (socket) => {
    accepted++;
    socket.on("error", () => {}).destroy();
  });
  const client = `
    let open = 0;
    for (let n = 0; n < ${count}; n++) {
      require("node:net").connect(${port}, "127.0.0.1", () => { if (++open === ${count}) process.exit(); });
    }`;
  // The synchronous call blocks the event loop, as a long turn does.
  execFileSync(process.execPath, ["--eval", client]);
  let turns = 0;
  while (accepted < count && turns < 10 * count) {
    await new Promise(setImmediate);
    turns++;
  }
  expect(accepted).toBe(count);
  return turns;
}

/** Returns the number of sockets that listen on a port, from the kernel's table. */
function countListening(port: number): number {
  const hex = port.toString(16).toUpperCase().padStart(4, "0");
  const pattern = new RegExp(`^ *\\d+: [0-9A-F]+:${hex} [0-9A-F]+:0000 0A `, "gm");
  return readFileSync("/proc/net/tcp", "latin1").match(pattern)?.length ?? 0;
}

describe.runIf(canSharePort)("on Linux", () => {
  test("each turn of the event loop accepts one connection from each listening socket", async () => {
    const count = 160;
    const one = createServer();
    const turnsOfOne = await countTurns(one, await start(one, { backlog: 4096 }), count);
    const several = createServer();
    const port = await start(several, { backlog: 4096, reusePort: true });
    open.push(...(await listenAlso(several, "127.0.0.1", 16, {})));
    const turns = await countTurns(several, port, count);
    expect(turnsOfOne).toBeGreaterThanOrEqual(count);
    expect(turns).toBeLessThan(turnsOfOne / 3);
  });

  test("a port in use cannot be claimed, and a second claim of a free port waits until the first is released", async () => {
    const server = createServer();
    const port = await start(server, { reusePort: true });
    await expect(claimPort(port, "127.0.0.1")).rejects.toMatchObject({ code: "EADDRINUSE" });
    await expect(claimPort(port, "0.0.0.0")).rejects.toMatchObject({ code: "EADDRINUSE" });
    const free = await findPort();
    const giveUp = await claimPort(free, "127.0.0.1");
    let isClaimed = false;
    const claimLater = async (): Promise<void> => {
      const release = await claimPort(free, "127.0.0.1");
      isClaimed = true;
      release();
    };
    const second = claimLater();
    await pause(100);
    expect(isClaimed).toBe(false);
    giveUp();
    await within(second, "the second claim");
  });

  test("the command has several listening sockets, and closes all when it stops", async () => {
    let begun = 0;
    upstream.handler = async (req, res) => {
      begun++;
      res.end(await text(req));
    };
    const proxy = command(`${upstream.url} --port 0`);
    const port = Number(new URL(await proxy.origin()).port);
    expect(countListening(port)).toBe(countListeners());
    const client = connect(port, "127.0.0.1").on("error", () => {});
    client.write("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\na");
    await until(() => begun > 0, "a running request");
    await fetch(`http://127.0.0.1:${port}/`).then((response) => response.text());
    proxy.child.kill("SIGTERM");
    await until(() => countListening(port) === 0, "the end of all");
    expect(proxy.exited).toBe(false);
    client.write("b");
    expect(await within(proxy.exit, "the exit")).toBe(0);
  });

  test("of two commands that start on one port at the same time, one is refused", async () => {
    for (let round = 0; round < 3; round++) {
      const port = await findPort();
      const both = [0, 1].map(() => command(`${upstream.url} --port ${port}`));
      const [code] = await Promise.race(both.map(async (each) => [await each.exit]));
      expect(code).toBe(2);
      const [refused, serving] = both[0]?.exited ? both : both.toReversed();
      expect(refused?.stderr).toContain(`port ${port} is in use: use --port with another`);
      await serving?.origin();
      expect(serving?.exited).toBe(false);
      await serving?.kill();
    }
  });
});
