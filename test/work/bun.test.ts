/** On Bun's server, the complete head of a response arrives in one chunk. */
import { once } from "node:events";
import { afterAll, beforeAll, expect, test } from "vitest";
import { connect } from "../helpers/client.ts";
import { type Host, startHost } from "../hosts/_host.ts";
import { Upstream } from "../helpers/upstream.ts";
import { within } from "../helpers/wait.ts";
import { request, type Header } from "../helpers/wire.ts";

const upstream = new Upstream();
let host: Host;
beforeAll(async () => {
  await upstream.listen();
  host = await startHost("bun", upstream.url);
});
afterAll(async () => {
  await host.stop();
  await upstream.stop();
});

test.each([
  ["1 KB", 1024, [["Content-Type", "text/plain"]]],
  ["1 KB without a type", 1024, []],
  ["64 KB", 65_536, [["Content-Type", "text/plain"]]],
] as [string, number, Header[]][])(
  "the head of a response of %s arrives in one chunk",
  async (_, length, more) => {
    const fields: Header[] = Array.from({ length: 6 }, (_each, i) => [`X-${i}`, `${i}`]);
    upstream.script = (call) => call.reply(200, [...fields, ...more], "x".repeat(length));
    const lengths: (string | undefined)[] = [];
    for (let i = 0; i < 20; i++) {
      const client = await connect(host.port("default"));
      client.send(request("GET", "/"));
      await within(once(client.socket, "readable"), "an answer");
      const first = client.socket.read() as Buffer;
      client.socket.unshift(first);
      expect(first.toString("latin1")).toContain("\r\n\r\n");
      const answer = await client.read();
      expect(answer).toMatchObject({ length });
      lengths.push(answer.get("content-length"));
      client.leave("FIN");
    }
    // On a busy machine, some bodies arrive from the upstream in several reads. Bun then sends the response chunked.
    expect(lengths).toContain(`${length}`);
  },
);
