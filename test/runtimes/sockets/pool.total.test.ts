/** The limit of idle connections over all origins of a transport: `maxTotalFreeSockets`. */
import { createServer } from "node:http";
import type { AddressInfo, Socket } from "node:net";
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { createProxy, createTransport } from "../../../runtimes/node.ts";
import { type IdleItem, IdleList } from "../../../src/http1/pool.ts";
import type { PoolOptions } from "../../../src/options/pooloptions.ts";
import { ask, pooled, statsOf } from "./_pool.ts";
import { until } from "../../helpers/wait.ts";

/** Returns an item that records when it is closed. */
function idle(name: string, closed: string[]): IdleItem {
  return { previousIdle: undefined, nextIdle: undefined, destroy: () => void closed.push(name) };
}

describe("`IdleList`", () => {
  test("when the list exceeds its limit, the connection that has been idle longest is closed", () => {
    const closed: string[] = [];
    const list = new IdleList(3);
    const [a, b, c, d, e] = Array.from("abcde", (name) => idle(name, closed)) as [
      IdleItem,
      IdleItem,
      IdleItem,
      IdleItem,
      IdleItem,
    ];
    for (const each of [a, b, c]) list.push(each);
    expect(closed).toEqual([]);
    list.push(d);
    expect(closed).toEqual(["a"]);
    // "b" was used and is idle again, so it is now the newest.
    list.remove(b);
    list.push(b);
    list.push(e);
    expect(closed).toEqual(["a", "c"]);
    for (const each of [d, e, b, a, a]) list.remove(each);
    for (const each of [a, b, c]) list.push(each);
    expect(closed).toEqual(["a", "c"]);
  });

  test("in a random sequence of operations, the list closes the connections that a model with an array drops", () => {
    let seed = 7;
    const random = (below: number): number => {
      seed = (seed * 48_271) % 2_147_483_647;
      return seed % below;
    };
    const closed: string[] = [];
    const list = new IdleList(5);
    const all = Array.from({ length: 12 }, (_, index) => idle(String(index), closed));
    let expected: number[] = [];
    const gone: string[] = [];
    for (let step = 0; step < 5000; step++) {
      const index = random(all.length);
      const isIn = expected.includes(index);
      expected = expected.filter((each) => each !== index);
      if (isIn || random(3) === 0) list.remove(all[index] as IdleItem);
      else {
        list.push(all[index] as IdleItem);
        expected.push(index);
        if (expected.length > 5) gone.push(String(expected.shift()));
      }
      expect(closed).toEqual(gone);
    }
  });
});

/** The sockets at the upstream, which serves every address 127.0.0.x as a separate origin. */
const sockets = new Set<Socket>();
let opened = 0;
const server = createServer((_, res) => res.end("ok"));
server.keepAliveTimeout = 0;
server.on("connection", (socket) => {
  opened++;
  sockets.add(socket);
  socket.on("close", () => sockets.delete(socket));
});
beforeEach(async () => {
  opened = 0;
  await new Promise<void>((resolve) => server.listen(0, "0.0.0.0", resolve));
});
afterEach(async () => {
  server.closeAllConnections();
  await new Promise((resolve) => server.close(resolve));
});

function toMany(pool: PoolOptions): (origin: number) => Promise<string> {
  const { port } = server.address() as AddressInfo;
  // freeSocketTimeout is so long that no connection expires.
  const patient = { freeSocketTimeout: 60_000, ...pool };
  const proxy = pooled(
    patient,
    ({ url }) => `http://127.0.0.${new URL(url).pathname.slice(1)}:${port}`,
  );
  return (origin) => ask(proxy, `/${origin}`);
}

describe.runIf(process.platform === "linux")(
  "maxTotalFreeSockets, the limit over all origins",
  () => {
    const left = (): string[] =>
      Array.from(sockets, (socket) => socket.localAddress ?? "").toSorted();

    test("the most recently used idle connections are kept up to the limit", async () => {
      const askAt = toMany({ maxTotalFreeSockets: 4 });
      for (let origin = 1; origin <= 20; origin++) expect(await askAt(origin)).toBe("200 ok");
      await until(() => sockets.size === 4, "4 connections left");
      const last = [17, 18, 19, 20].map((origin) => `127.0.0.${origin}`);
      expect(left()).toEqual(last);
      for (const origin of [17, 18, 19, 20]) await askAt(origin);
      expect(opened).toBe(20);
      // After this request to origin 17, the connection to origin 18 has been idle longest.
      await askAt(17);
      await askAt(1);
      await until(() => sockets.size === 4, "4 connections left");
      expect(left()).toEqual(["127.0.0.1", "127.0.0.17", "127.0.0.19", "127.0.0.20"]);
      expect(opened).toBe(21);
    });

    test("connections in use are not counted and not closed", async () => {
      const askAt = toMany({ maxTotalFreeSockets: 2 });
      for (let round = 0; round < 5; round++) {
        const answers = await Promise.all(Array.from({ length: 30 }, (_, i) => askAt(i + 1)));
        expect(answers).toEqual(Array(30).fill("200 ok"));
        await until(() => sockets.size === 2, "2 connections left");
      }
    });

    test("with a limit of 0, no connection is kept", async () => {
      const askAt = toMany({ maxTotalFreeSockets: 0 });
      for (let count = 1; count <= 3; count++) {
        await askAt(1);
        await until(() => sockets.size === 0, "no connection left");
        expect(opened).toBe(count);
      }
    });

    test("with a limit of Infinity, all connections are kept", async () => {
      const askAt = toMany({ maxTotalFreeSockets: Infinity });
      for (let origin = 1; origin <= 50; origin++) await askAt(origin);
      expect(sockets.size).toBe(50);
    });

    test("stats() counts the closed connections", async () => {
      const { port } = server.address() as AddressInfo;
      const transport = createTransport({ maxTotalFreeSockets: 1, freeSocketTimeout: 60_000 });
      const target = ({ url }: Request): string =>
        `http://127.0.0.${new URL(url).pathname.slice(1)}:${port}`;
      const proxy = createProxy({ target, transport });
      for (let origin = 1; origin <= 5; origin++) await ask(proxy, `/${origin}`);
      await until(() => statsOf(proxy).closed === 4, "4 connections closed");
      const free = Object.values(statsOf(proxy).origins).map((each) => each.free);
      expect([statsOf(proxy).created, free.reduce((a, b) => a + b)]).toEqual([5, 1]);
      await transport.close?.();
      expect(statsOf(proxy).closed).toBe(5);
    });
  },
);
