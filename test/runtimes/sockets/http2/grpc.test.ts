/** gRPC through the proxy equals a direct call: all kinds of calls, errors, deadlines and cancellation. */
import { createServer } from "node:http2";
import { beforeAll, expect, test } from "vitest";
import { createProxy } from "../../../../runtimes/node.ts";
import { makeCertificate } from "../../../helpers/certificate.ts";
import { callAll, type GrpcServer, startGrpc } from "./_grpc.ts";
import { startProgram } from "../../../helpers/program.ts";
import { listen, serve } from "../../../helpers/serve.ts";

interface Started {
  port: number;
  close: () => unknown;
  /** The certificate that the client must trust, if the server has TLS. */
  ca?: string;
}

/** Starts a server with a proxy to an upstream. */
type Front = (url: string) => Promise<Started>;

const certificate = await makeCertificate();
const tls = { ca: certificate.cert };
const NODE = JSON.stringify(new URL("../../../../runtimes/node.ts", import.meta.url).href);

/** Starts a front on another runtime, with that runtime's `node:http2` and the proxy's entry for Node. */
async function startOn(runtime: "bun" | "deno", url: string): Promise<Started> {
  const script = `
    import { createServer } from "node:http2";
    import { createProxy } from ${NODE};
    const proxy = createProxy({ target: ${JSON.stringify({ url, http2: true, tls })} });
    const server = createServer(proxy.nodeHandler);
    server.listen(0, "127.0.0.1", () => console.log("port=" + server.address().port));
  `;
  const program = startProgram(runtime, [runtime === "bun" ? "-e" : "eval", script]);
  const [, port] = await program.printed(/port=(\d+)/);
  return { port: Number(port), close: () => program[Symbol.asyncDispose]() };
}

const overHttp: Record<string, Front> = {
  async "node:http2"(url) {
    const proxy = createProxy({ target: url, pool: { http2: true } });
    const server = createServer(proxy.nodeHandler);
    const port = await listen(server);
    return { port, close: () => (server.close(), proxy.destroy()) };
  },
  async "srvx on node:http2"(url) {
    const proxy = createProxy({ target: { url, http2: true } });
    const { toNodeHandler } = await import("srvx/node");
    const server = createServer(toNodeHandler((request) => proxy.fetch(request)) as never);
    const port = await listen(server);
    return { port, close: () => (server.close(), proxy.destroy()) };
  },
  "node:http2 on Bun": (url) => startOn("bun", url),
  "node:http2 on Deno": (url) => startOn("deno", url),
  async "the command on a port without TLS"(url) {
    const program = startProgram("node", ["command/main.ts", url, "--http2", "--port", "0"]);
    const [, port] = await program.printed(/listens on http:\/\/127\.0\.0\.1:(\d+)/);
    return { port: Number(port), close: () => program[Symbol.asyncDispose]() };
  },
};

const overTls: Record<string, Front> = {
  async "srvx with TLS"(url) {
    const proxy = createProxy({ target: { url, http2: true, tls } });
    const { port, close } = await serve("srvx", {
      fetch: (request) => proxy.fetch(request),
      tls: certificate,
    });
    return { port, close: () => (close(), proxy.destroy()), ca: certificate.cert };
  },
  async "h3 with TLS"(url) {
    const proxy = createProxy({ target: { url, http2: true, tls } });
    const { H3, serve: serveH3 } = await import("h3");
    const app = new H3().all("/**", (event) => proxy.fetch(event.req));
    const server = serveH3(app, { port: 0, hostname: "127.0.0.1", silent: true, tls: certificate });
    await server.ready();
    const port = Number(new URL(server.url ?? "").port);
    return { port, close: () => (server.close(true), proxy.destroy()), ca: certificate.cert };
  },
  "node:http2 on Bun": (url) => startOn("bun", url),
  "node:http2 on Deno": (url) => startOn("deno", url),
};

let direct: unknown;
let seenDirectly: unknown[];

/** Makes all calls through a front, or directly. @returns their results, and the metadata that the server recorded */
async function run(
  server: GrpcServer,
  front?: Front,
): Promise<[outcomes: unknown, seen: unknown[]]> {
  let started: Started | undefined;
  try {
    started = await front?.(server.url);
    const { port = server.port, ca } = started ?? {};
    const outcomes = await callAll(port, () => server.cancelled(), ca);
    return [outcomes, server.seen];
  } finally {
    await started?.close();
    server.stop();
  }
}

beforeAll(async () => {
  [direct, seenDirectly] = await run(await startGrpc());
});

test("gRPC calls without a proxy have the expected results", () => {
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

test.each(Object.entries(overHttp))(
  "%s: every gRPC call has the same result and the same metadata as without a proxy",
  async (_, front) => {
    const [outcomes, seen] = await run(await startGrpc(), front);
    expect(withoutDetail(outcomes)).toEqual(withoutDetail(direct));
    expect(seen).toEqual(seenDirectly);
  },
);

test.each(Object.entries(overTls))(
  "%s: every gRPC call to a server with TLS has the same result and the same metadata as without a proxy",
  async (_, front) => {
    const [outcomes, seen] = await run(await startGrpc(certificate), front);
    expect(withoutDetail(outcomes)).toEqual(withoutDetail(direct));
    expect(seen).toEqual(seenDirectly);
  },
);

/** Removes the details of a missed deadline, which contain the address and the time. */
function withoutDetail(outcomes: unknown): unknown {
  const { deadline, ...others } = structuredClone(outcomes) as Record<string, { status: object }>;
  return { ...others, deadline: { ...deadline, status: { ...deadline?.status, details: "" } } };
}
