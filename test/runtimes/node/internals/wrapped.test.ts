/** Detection of code that sees chunks and is not Node's own, also on a version of Node that has renamed its members. */
import { request as ask, type IncomingMessage } from "node:http";
import { Socket } from "node:net";
import { once } from "node:events";
import { Readable } from "node:stream";
import { expect, test, vi } from "vitest";
import { free } from "../../../../runtimes/sockets/buffercodec.ts";
import {
  Audience,
  ChunkMethods,
  isUnwrappedResponse,
  isUnwrappedSocket,
  watchReads,
} from "../../../../runtimes/node/internals/wrapped.ts";
import { useApps } from "../../../helpers/apps.ts";
import { hideOnSocket } from "../_hidden.ts";

const apps = useApps();

/** Uploads a body, and returns the values of `Audience.isEmpty` at its chunks. */
async function listen(change: (req: IncomingMessage) => IncomingMessage): Promise<Set<boolean>> {
  const said = new Set<boolean>();
  const port = await apps.serve("node", (req, res) => {
    const audience = new Audience(change(req));
    req.on("data", () => said.add(audience.isEmpty)).on("end", () => res.end());
  });
  const sent = ask({ port, method: "POST" });
  sent.end("x".repeat(200_000));
  const [response] = (await once(sent, "response")) as [IncomingMessage];
  response.resume();
  await once(response, "end");
  return said;
}

test("on this version of Node, sockets, requests and responses count as unwrapped", async () => {
  const said: boolean[] = [];
  const port = await apps.serve("node", (req, res) => {
    said.push(isUnwrappedSocket(req.socket), isUnwrappedResponse(res));
    res.end();
  });
  const client = await apps.connect(port);
  client.send("GET / HTTP/1.1\r\nHost: proxy.test\r\n\r\n");
  expect((await client.read()).status).toBe(200);
  expect(said).toEqual([true, true]);
  expect(await listen((req) => req)).toEqual(new Set([true]));
});

test("a method that Node has renamed counts as wrapped", () => {
  const isUnwrapped = (...names: string[]): boolean =>
    new ChunkMethods(names, () => Readable.prototype).areUnwrapped(new Readable());
  expect(isUnwrapped("push", "_renamed")).toBe(false);
  expect(isUnwrapped("push")).toBe(true);
  const missing = new ChunkMethods(["push"], () => undefined);
  expect(missing.areUnwrapped(new Readable())).toBe(false);
});

test("chunks count as seen by other code if Node has renamed the property `parser` of a socket", async () => {
  expect(await listen((req) => hideOnSocket(req, "parser"))).toEqual(new Set([false]));
});

test("a socket counts as wrapped if a method of its handle is missing or not native, or if it has no `_handle`", async () => {
  const seen: boolean[] = [];
  const port = await apps.serve("node", (req, res) => {
    const { _handle: handle } = req.socket as unknown as {
      _handle: { writeBuffer: () => void; writev: () => void };
    };
    const { writeBuffer, writev } = handle;
    const others = [
      handle,
      { writeBuffer, writev: () => {} },
      { writeBuffer: writeBuffer.bind(handle), writev },
      { writeBuffer },
      null,
    ];
    for (const other of others) {
      const socket = Object.create(req.socket, { _handle: { value: other } }) as Socket;
      seen.push(!isUnwrappedSocket(socket));
    }
    res.end();
  });
  const [response] = (await once(ask({ port }).end(), "response")) as [IncomingMessage];
  await once(response.resume(), "end");
  expect(seen).toEqual([false, true, true, true, true]);
});

test.each([
  ["none", () => {}, false],
  ["a listener", (socket: Socket) => socket.on("data", () => {}), true],
  [
    "a listener that is called once",
    (socket: Socket) => socket.prependOnceListener("data", () => {}),
    true,
  ],
  ["a `readable` listener", (socket: Socket) => socket.once("readable", () => {}), true],
  [
    "a wrapped `emit`",
    (socket: Socket) => Object.assign(socket, { emit: socket.emit.bind(socket) }),
    true,
  ],
] as [string, (socket: Socket) => unknown, boolean][])(
  "`watchReads` detects whether other code sees the chunks that a socket reads: %s",
  async (_, addOther, isSeen) => {
    for (const order of ["before", "after"]) {
      const socket = new Socket();
      if (order === "before") addOther(socket);
      const isSeenNow = watchReads(socket);
      const said: boolean[] = [];
      socket.on("data", () => said.push(isSeenNow()));
      if (order === "after") addOther(socket);
      socket.push("x");
      socket.resume();
      await vi.waitFor(() => expect(said).toEqual([isSeen]));
    }
  },
);

test("`free` frees memory, but does not change memory that cannot be transferred", () => {
  const bytes = new Uint8Array(new WebAssembly.Memory({ initial: 1 }).buffer);
  free(bytes);
  expect(bytes.byteLength).toBe(65_536);
  const own = new Uint8Array(20_000);
  free(own);
  expect(own.byteLength).toBe(0);
});
