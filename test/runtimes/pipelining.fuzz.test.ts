/** Random exchanges in random chunks pass through real hosts unchanged in both directions. */
import fc from "fast-check";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { connect, type Client } from "../helpers/client.ts";
import { type Host, startHost } from "../hosts/_host.ts";
import type { HostName } from "../hosts/_hosts.ts";
import type { Call } from "../helpers/link.ts";
import type { SetupName } from "../hosts/_setups.ts";
import { Upstream } from "../helpers/upstream.ts";
import { within } from "../helpers/wait.ts";
import { chunk, lastChunk, request, type Header } from "../helpers/wire.ts";

/** A body in chunks, with a number of turns of the event loop before each. */
interface Pieces {
  sizes: number[];
  turns: number[];
}

interface Exchange {
  method: string;
  request: Pieces;
  requestFraming: "none" | "sized" | "chunked";
  status: number;
  response: Pieces;
  responseFraming: "sized" | "chunked" | "close";
  /** Whether the upstream answers as soon as it has received the head. */
  early: boolean;
}

const size = fc.oneof(
  { weight: 4, arbitrary: fc.integer({ min: 1, max: 40 }) },
  { weight: 2, arbitrary: fc.constantFrom(1, 2, 1023, 4096, 16_383, 16_384, 65_535, 65_536) },
  { weight: 1, arbitrary: fc.integer({ min: 1, max: 200_000 }) },
);
const pieces: fc.Arbitrary<Pieces> = fc.record({
  sizes: fc.array(size, { maxLength: 6 }),
  turns: fc.array(fc.nat(3), { minLength: 6, maxLength: 6 }),
});
const exchange: fc.Arbitrary<Exchange> = fc.record({
  method: fc.constantFrom("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"),
  request: pieces,
  requestFraming: fc.constantFrom("none", "sized", "chunked"),
  status: fc.constantFrom(200, 200, 201, 206, 404, 500, 204, 304),
  response: pieces,
  responseFraming: fc.constantFrom("sized", "chunked", "close"),
  early: fc.boolean(),
});

const exchanges = fc.array(exchange, { minLength: 1, maxLength: 4 });
/** With hooks, the proxy also reads parts of messages that it otherwise only passes on. */
const setup = fc.constantFrom<SetupName>("default", "hooked");

/** Bytes that depend on their position, so that lost, repeated or moved chunks are noticed. */
function bytesOf(sizes: number[], salt: number): Buffer {
  const bytes = Buffer.alloc(sizes.reduce((sum, each) => sum + each, 0));
  for (let at = 0; at < bytes.length; at++) bytes[at] = (at * 31 + (at >> 8) * 17 + salt) & 0xff;
  return bytes;
}

async function send(
  write: (bytes: Uint8Array) => void,
  { sizes, turns }: Pieces,
  body: Buffer,
  framing: string,
): Promise<void> {
  let at = 0;
  for (const [index, length] of sizes.entries()) {
    for (let turn = 0; turn < (turns[index] ?? 0); turn++) await new Promise(setImmediate);
    const piece = body.subarray(at, (at += length));
    write(framing === "chunked" ? chunk(piece) : piece);
  }
  if (framing === "chunked") write(lastChunk);
}

function framingOf(framing: string, length: number): Header[] {
  if (framing === "sized") return [["Content-Length", `${length}`]];
  return framing === "chunked" ? [["Transfer-Encoding", "chunked"]] : [];
}

const bodyless = (method: string, status: number): boolean =>
  method === "HEAD" || status === 204 || status === 304;

async function answer(call: Call, step: Exchange, body: Buffer): Promise<void> {
  if (!step.early) await call.done;
  const framing = step.status === 204 ? [] : framingOf(step.responseFraming, body.length);
  call.reply(step.status, framing.length > 0 ? framing : [["Connection", "close"]], null);
  if (!bodyless(step.method, step.status)) {
    await send((bytes) => call.write(bytes), step.response, body, step.responseFraming);
  }
  if (framing.length === 0) call.close();
}

describe.each<HostName>(["node", "srvx", "h3", "hono", "bun", "deno", "workerd"])(
  "the host %s",
  (name) => {
    const upstream = new Upstream();
    let host: Host;
    beforeAll(async () => {
      await upstream.listen();
      host = await startHost(name, upstream.url);
    });
    afterAll(async () => {
      await host.stop();
      await upstream.stop();
    });

    /**
     * Whether the server may close the connection after the exchange: after an early answer, and on Deno after a request
     * with framing.
     */
    const mayClose = ({ early, requestFraming }: Exchange): boolean =>
      early || (name === "deno" && requestFraming !== "none");

    async function run(client: Client, step: Exchange, index: number): Promise<void> {
      // GET and HEAD send no body here, because a proxy need not forward one. A request without framing has no body either.
      const sends = !/^(GET|HEAD)$/.test(step.method) && step.requestFraming !== "none";
      // On workerd, answer an upload only at its end: workerd may end an upload that is answered early as if it were complete,
      // or lose the answer to a reset.
      const early = step.early && !(sends && name === "workerd");
      const sent = bytesOf(sends ? step.request.sizes : [], index);
      const body = bytesOf(step.response.sizes, index + 128);
      upstream.script = (call) => answer(call, { ...step, early }, body);
      const before = upstream.calls.length;
      const fields = sends ? framingOf(step.requestFraming, sent.length) : [];
      client.send(request(step.method, `/${index}`, fields));
      const sending = sends
        ? send((bytes) => client.send(bytes), step.request, sent, step.requestFraming)
        : undefined;

      const got = await client.read(step.method);
      expect(got).toMatchObject({ status: step.status, cut: false });
      expect(got.body.equals(bodyless(step.method, step.status) ? Buffer.alloc(0) : body)).toBe(
        true,
      );
      await sending;
      const call = await upstream.call(before);
      expect(call.method).toBe(step.method);
      await within(call.done, "the request's end");
      // After the response, the rest of the upload may be dropped, but a complete body must be the sent one.
      if (call.state === "complete") expect(call.body.equals(sent)).toBe(true);
      else expect([early, sent.subarray(0, call.length).equals(call.body)]).toEqual([true, true]);
      expect(upstream.calls).toHaveLength(before + 1);
    }

    test("any sequence of requests and responses passes unchanged in both directions", async () => {
      await fc.assert(
        fc.asyncProperty(exchanges, setup, async (steps, way) => {
          await upstream.reset();
          let client = await connect(host.port(way));
          try {
            for (const [index, step] of steps.entries()) {
              if (index > 0 && mayClose(steps[index - 1] as Exchange)) {
                client.leave("FIN");
                client = await connect(host.port(way));
              }
              await run(client, step, index);
            }
          } finally {
            client.leave("FIN");
          }
          expect(upstream.faults).toEqual([]);
          expect(host.complaints()).toBe("");
        }),
        { numRuns: 150, plugins: [fc.interruptAfterTimeLimit(20_000)] },
      );
    });
  },
);
