/** Whether memory is known to be seen by Node's own code only: on this Node, and on one with other names. */
import { request as ask, type IncomingMessage } from "node:http";
import { once } from "node:events";
import { Readable } from "node:stream";
import { expect, test } from "vitest";
import {
  areUnwrapped,
  Audience,
  captureMethods,
  isUnwrappedResponse,
  isUnwrappedSocket,
} from "../runtimes/node/internals/wrapped.ts";
import { useApps } from "./_apps.ts";
import { hideOnSocket } from "./_hidden.ts";

const apps = useApps();

/** What an audience says of the chunks of an upload. */
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

test("this Node has every method, and its messages are unwrapped", async () => {
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
  const methods = captureMethods(Readable.prototype, ["push", "_renamed"]);
  expect(areUnwrapped(new Readable(), methods)).toBe(false);
  expect(areUnwrapped(new Readable(), captureMethods(Readable.prototype, ["push"]))).toBe(true);
  expect(areUnwrapped(new Readable(), captureMethods(undefined, ["push"]))).toBe(false);
});

test("chunks of a parser that Node has renamed count as seen", async () => {
  expect(await listen((req) => hideOnSocket(req, "parser"))).toEqual(new Set([false]));
});
