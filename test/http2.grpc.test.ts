/** gRPC through the proxy equals a direct call: all kinds of calls, errors, deadlines and cancellation. */
import { createServer } from "node:http2";
import { beforeAll, describe, expect, test } from "vitest";
import { createProxy } from "../runtimes/node.ts";
import { makeCertificate } from "./_certificate.ts";
import { callAll, type GrpcServer, startGrpc } from "./_grpc.ts";
import { type Program, startProgram } from "./_program.ts";
import { listen, serve } from "./_serve.ts";

/** Starts a proxy to a port. @returns its own port, and what closes it */
type Front = (upstream: number) => Promise<{ port: number; close: () => unknown; ca?: string }>;

const certificate = makeCertificate();
const target = (port: number): string => `http://127.0.0.1:${port}`;

/** A front on another runtime: its `node:http2`, with the proxy's entry for Node. */
function startFront(program: Program): ReturnType<Front> {
  return program.printed(/port=(\d+)/).then(([, port]) => ({
    port: Number(port),
    close: () => program[Symbol.asyncDispose](),
  }));
}

const script = (port: number): string => `
  import { createServer } from "node:http2";
  import { createProxy } from ${JSON.stringify(new URL("../runtimes/node.ts", import.meta.url).href)};
  const proxy = createProxy({ target: { url: ${JSON.stringify(target(port))}, http2: true } });
  const server = createServer(proxy.nodeHandler);
  server.listen(0, "127.0.0.1", () => console.log("port=" + server.address().port));
`;

const fronts: Record<string, Front> = {
  async "node:http2"(upstream) {
    const proxy = createProxy({ target: target(upstream), pool: { http2: true } });
    const server = createServer(proxy.nodeHandler as never);
    const port = await listen(server);
    return { port, close: () => (server.close(), proxy.destroy()) };
  },
  async "srvx on node:http2"(upstream) {
    const proxy = createProxy({ target: { url: target(upstream), http2: true } });
    const { toNodeHandler } = await import("srvx/node");
    const server = createServer(toNodeHandler((request) => proxy.fetch(request)) as never);
    const port = await listen(server);
    return { port, close: () => (server.close(), proxy.destroy()) };
  },
  async "srvx with TLS"(upstream) {
    const proxy = createProxy({ target: { url: target(upstream), http2: true } });
    const { port, close } = await serve("srvx", {
      fetch: (request) => proxy.fetch(request),
      tls: certificate,
    });
    return { port, close: () => (close(), proxy.destroy()), ca: certificate.cert };
  },
  async "h3 with TLS"(upstream) {
    const proxy = createProxy({ target: { url: target(upstream), http2: true } });
    const { H3, serve: serveH3 } = await import("h3");
    const app = new H3().all("/**", (event) => proxy.fetch(event.req));
    const server = serveH3(app, { port: 0, hostname: "127.0.0.1", silent: true, tls: certificate });
    await server.ready();
    const port = Number(new URL(server.url ?? "").port);
    return { port, close: () => (server.close(true), proxy.destroy()), ca: certificate.cert };
  },
  "node:http2 on Bun": (upstream) => startFront(startProgram("bun", ["-e", script(upstream)])),
  "node:http2 on Deno": (upstream) => startFront(startProgram("deno", ["eval", script(upstream)])),
};

let direct: unknown;
let seenDirectly: unknown[];

async function run(front?: Front): Promise<[outcomes: unknown, seen: unknown[]]> {
  const server: GrpcServer = await startGrpc();
  const started = await front?.(server.port);
  try {
    const { port = server.port, ca } = started ?? {};
    const outcomes = await callAll(port, () => server.cancelled(), ca);
    return [outcomes, server.seen];
  } finally {
    await started?.close();
    server.stop();
  }
}

beforeAll(async () => {
  [direct, seenDirectly] = await run();
});

test("the direct calls are what they should be", () => {
  expect(direct).toMatchObject({
    unary: { messages: ["re:hello"], status: { code: 0, details: "OK" } },
    empty: { messages: ["re:"] },
    fail: { messages: [], status: { code: 9, details: "no, ünd %" } },
    unimplemented: { status: { code: 12 } },
    list: { messages: ["item 0", "item 1", "item 2", "item 3", "item 4"], status: { code: 0 } },
    listAndFail: { messages: ["first"], status: { code: 9 } },
    refuse: { status: { code: 9 } },
    chat: { messages: ["re:0", "re:1", "re:2", "re:3", "re:4"], status: { code: 0 } },
    deadline: { status: { code: 4 } },
    cancel: { messages: ["re:x"], status: { code: 1 } },
  });
});

describe.each(Object.entries(fronts))("%s", (_, front) => {
  test("every call gives what the direct call gives, and the server sees the same metadata", async () => {
    const [outcomes, seen] = await run(front);
    expect(withoutDetail(outcomes)).toEqual(withoutDetail(direct));
    expect(seen).toEqual(seenDirectly);
  });
});

/** The details of a deadline tell the address and the time that was waited. */
function withoutDetail(outcomes: unknown): unknown {
  const { deadline, ...others } = structuredClone(outcomes) as Record<string, { status: object }>;
  return { ...others, deadline: { ...deadline, status: { ...deadline?.status, details: "" } } };
}
