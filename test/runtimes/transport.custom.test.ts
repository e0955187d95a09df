/** Custom transports: the example over `node:http`, and the contract in the doc string of `send`. */
import { readFileSync, rmSync, writeFileSync } from "node:fs";
import { createServer, request as sendByNode } from "node:http";
import { buffer } from "node:stream/consumers";
import { afterAll, afterEach, beforeAll, expect, test } from "vitest";
import { createProxy, type Transport } from "#fetchway";
import { createUndiciTransport } from "../../runtimes/undici.ts";
import type { BodySource, Scope, Sink } from "../../src/transport.ts";
import { copyPathOf, readLinkedExample } from "../project/_example.ts";
import { listen } from "../helpers/serve.ts";
import { Upstream } from "../helpers/upstream.ts";
import { within } from "../helpers/wait.ts";

/** The methods of a scope that a transport must call. */
const REQUIRED = ["onAbort", "touch", "end"];

const upstream = new Upstream();
const copy = copyPathOf("transport");
/** The names of the members of scopes that the transport has used. */
const used = new Set<string>();
let transport: Transport;

/** Returns a scope that records which of its members are used. */
function record(scope: Scope): Scope {
  return new Proxy(scope, {
    get(target, name) {
      used.add(String(name));
      const value: unknown = Reflect.get(target, name, target);
      return typeof value === "function" ? (value.bind(target) as unknown) : value;
    },
  });
}

beforeAll(async () => {
  writeFileSync(copy, readLinkedExample("transport"));
  const example = ((await import(copy)) as { transport: Transport }).transport;
  transport = { ...example, send: (request, scope) => example.send(request, record(scope)) };
  await upstream.listen();
});
afterEach(async () => {
  used.clear();
  await upstream.reset();
});
afterAll(async () => {
  rmSync(copy);
  await upstream.stop();
});

/** Sends a request through a proxy with the transport. */
function send(timeout: number, init: RequestInit & { duplex?: "half" } = {}): Promise<Response> {
  const proxy = createProxy({ target: upstream.url, transport, timeout });
  return proxy.fetch(new Request("http://proxy.test/", init));
}

test("a custom transport works if it calls only the three scope methods in the doc string of `send`", async () => {
  upstream.script = async (call) => {
    await call.done;
    call.reply(200, [], call.text);
  };
  const text = "x".repeat(100_000);
  const body = new Blob([text]).stream().pipeThrough(new TransformStream());
  const answer = await send(10_000, { method: "POST", body, duplex: "half" });
  expect(await answer.text()).toBe(text);
  // `ResponseBody`, not the transport, calls `pauseIdle` while its reader is slow.
  used.delete("pauseIdle");
  expect([...used].toSorted()).toEqual(REQUIRED.toSorted());

  const source = readFileSync(new URL("../../src/transport/port.ts", import.meta.url), "utf8");
  const [, list = ""] =
    /must\s+\*? ?call three methods of the scope:([^]*?)It may call/.exec(source) ?? [];
  expect([...list.matchAll(/^ +\* - `(\w+)`/gm)].map(([, name]) => name)).toEqual(REQUIRED);
});

test("a custom transport's upstream request is stopped at the deadline, and when the client disconnects", async () => {
  upstream.script = () => {};
  const late = send(2000);
  const first = await upstream.call();
  expect((await within(late, "the deadline")).status).toBe(504);
  await within(first.link.closed, "the close of the first connection");

  const leaving = new AbortController();
  const left = send(10_000, { signal: leaving.signal });
  const second = await upstream.call(1);
  leaving.abort();
  expect((await within(left, "the response")).status).toBe(499);
  await within(second.link.closed, "the close of the second connection");
});

/** A body with a custom class. Its stream is not used, because the servers on Node prefer bytes. */
class CollectedBody implements BodySource {
  readonly #bytes: Uint8Array;
  constructor(bytes: Uint8Array) {
    this.#bytes = bytes;
  }
  whole(): Uint8Array {
    return this.#bytes;
  }
  pipeTo(sink: Sink): void {
    sink.write(this.#bytes);
    sink.end();
  }
  stream(): never {
    throw new Error("a stream is the slow path");
  }
  cancel(): void {}
}

/** A transport over `node:http` that collects each response. */
const collecting: Transport = {
  name: "collecting",
  capabilities: { decodes: [], host: true, unixSocket: false, tls: false },
  send: ({ upstream: { origin }, path, method }, scope) =>
    new Promise((resolve, reject) => {
      const outgoing = sendByNode(origin, { path, method });
      scope.onAbort({ fail: reject });
      outgoing.on("error", reject).on("response", (message) => {
        const collect = async (): Promise<void> => {
          const body = new CollectedBody(await buffer(message));
          scope.end();
          resolve({ status: 200, statusText: "", headers: message.rawHeaders, body });
        };
        collect().catch(reject);
      });
      outgoing.end();
    }),
};

test.each<[string, isCopied: boolean, options: () => { transport?: Transport }]>([
  // This client copies chunks out of the buffer into which it reads from all connections.
  ["Fetchway's own client", true, () => ({})],
  ["undici", false, () => ({ transport: createUndiciTransport() })],
  // Node's HTTP parser copies bodies.
  ["the example over node:http", true, () => ({ transport })],
  ["a transport with its own class for bodies", true, () => ({ transport: collecting })],
])(
  "%s: Node's response gets a small body in one write, copied: %s",
  async (_, isCopied, options) => {
    const proxy = createProxy({ target: upstream.url, ...options() });
    const written: unknown[] = [];
    const server = createServer((req, res) => {
      const write = res.write.bind(res) as (...args: unknown[]) => boolean;
      const end = res.end.bind(res) as (...args: unknown[]) => typeof res;
      res.write = (...args: unknown[]) => {
        written.push("a write");
        return write(...args);
      };
      res.end = (...args: unknown[]) => {
        written.push(args[0]);
        return end(...args);
      };
      proxy.nodeHandler(req, res);
    });
    const port = await listen(server);
    try {
      const body = "x".repeat(1000);
      upstream.script = (call) => call.reply(200, [], body);
      const answer = await fetch(`http://127.0.0.1:${port}/`);
      expect(await answer.text()).toBe(body);
      expect(written.map(String)).toEqual([body]);
      // Without a copy, the chunk is a view of a read buffer, which begins with the head of the response.
      const memory = Buffer.from((written as [Uint8Array])[0].buffer).toString("latin1");
      expect(memory.startsWith("HTTP/1.1 200")).toBe(!isCopied);
    } finally {
      server.close();
      proxy.destroy();
    }
  },
);

test("only fetchway/transport exports the types that transports and interceptors use", () => {
  const namesIn = (file: string): string[] => {
    const code = readFileSync(new URL(`../../src/${file}`, import.meta.url), "utf8");
    const lists = [...code.matchAll(/^export (?:type )?\{([^}]*)\}/gm)];
    const listed = lists.flatMap(([, list = ""]) => list.match(/\w+(?=\s*(?:,|$))/g) ?? []);
    const declared = [...code.matchAll(/^export (?:interface|type) (\w+)/gm)];
    return [...listed, ...declared.map(([, name = ""]) => name)];
  };
  const parts = [
    "AbortTarget",
    "BodySource",
    "Interceptor",
    "ResponseBody",
    "Scope",
    "Send",
    "Sink",
  ];
  parts.push("UpstreamRequest", "UpstreamResponse");
  expect(namesIn("transport.ts")).toEqual(expect.arrayContaining(parts));
  const isPart = (name: string): boolean => parts.includes(name);
  expect(namesIn("index.ts")).toContain("Transport");
  expect(namesIn("index.ts").filter(isPart)).toEqual([]);
});
