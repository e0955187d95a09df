/** Request bodies that pass from Node's server to an upstream. */
import { once } from "node:events";
import { Agent, request, type IncomingMessage, type RequestListener } from "node:http";
import { PassThrough } from "node:stream";
import { buffer } from "node:stream/consumers";
import Fastify from "fastify";
import { afterAll, expect, test } from "vitest";
import { createProxy } from "../../../runtimes/node.ts";
import { IncomingBody } from "../../../runtimes/node/incomingbody.ts";
import { serve } from "../../helpers/serve.ts";
import { FakeSink } from "../../helpers/sink.ts";
import { until } from "../../helpers/wait.ts";

test("an interrupted request body makes the sending fail, so that it never looks complete", async () => {
  const message = new PassThrough();
  const sink = new FakeSink("borrowed");
  const body = new IncomingBody(message as unknown as IncomingMessage);
  const sent = body.pipeTo(sink);
  message.write("half");
  message.destroy(new Error("broken"));
  await sent;
  expect(sink.log).toEqual(["flush", "half", "fail broken"]);
});

const closing: (() => unknown)[] = [];
afterAll(async () => {
  for (const close of closing.toReversed()) await close();
});

async function startHttp(handler: RequestListener): Promise<string> {
  const { port, close } = await serve("node", handler);
  closing.push(close);
  return `http://127.0.0.1:${port}`;
}

const BODY = Buffer.from(
  Uint32Array.from({ length: 3_000_000 }, (_, i) => i * 2_654_435_761).buffer,
);

/** The upstream echoes the request, but reads nothing before `start` resolves, so that chunks wait in the proxy. */
let start: Promise<unknown> = Promise.resolve();
const target = await startHttp((req, res) => {
  void start.then(async () => res.end(await buffer(req)));
});
const proxy = createProxy({ target });
closing.push(() => proxy.close());

/** Uploads the body through a handler, with these header fields. */
async function upload(handler: RequestListener, headers: Record<string, string>): Promise<Buffer> {
  const sent = request(await startHttp(handler), { method: "POST", headers });
  sent.end(BODY);
  const [response] = (await once(sent, "response")) as [IncomingMessage];
  return buffer(response);
}

const framings: Record<string, Record<string, string>> = {
  "with its length": { "content-length": `${BODY.length}` },
  "in chunks": { "transfer-encoding": "chunked" },
};

test.each(Object.keys(framings))(
  "a body %s is sent unchanged although its chunks waited in the proxy",
  async (framing) => {
    const gate = Promise.withResolvers<void>();
    start = gate.promise;
    let req: IncomingMessage | undefined;
    const uploaded = upload((...pair) => {
      [req] = pair;
      proxy.nodeHandler(...pair);
    }, framings[framing] ?? {});
    await until(() => req?.readableFlowing === false, "the pause of the upload");
    gate.resolve();
    expect((await uploaded).equals(BODY)).toBe(true);
  },
);

test("a body that is not sent does not block the connection's next request", async () => {
  const answering = createProxy({ target, onRequest: () => new Response("mine") });
  const url = await startHttp((req, res) => {
    // Add a listener, because Node itself drains a request body only if no code has listened to it.
    req.on("data", () => {});
    setImmediate(() => answering.nodeHandler(req, res));
  });
  const agent = new Agent({ keepAlive: true, maxSockets: 1 });
  closing.push(
    () => agent.destroy(),
    () => answering.close(),
  );
  for (let count = 0; count < 2; count++) {
    const sent = request(url, {
      method: "POST",
      agent,
      headers: framings["with its length"] ?? {},
    });
    sent.flushHeaders();
    const [response] = (await once(sent, "response")) as [IncomingMessage];
    sent.end(BODY);
    expect((await buffer(response)).toString()).toBe("mine");
  }
});

type Watch = (req: IncomingMessage, keep: (chunk: Buffer) => void) => void;

const watchers: Record<string, Watch> = {
  "listens to data": (req, keep) => void req.on("data", keep),
  "listens to data, and pauses": (req, keep) => void req.on("data", keep).pause(),
  "listens once": (req, keep) => void req.once("data", keep),
  "listens once, and late": (req, keep) => {
    req.on("resume", () => void req.prependOnceListener("data", keep));
  },
  "stops listening": (req, keep) => {
    const stop = (chunk: Buffer): void => {
      keep(chunk);
      req.off("data", stop);
    };
    req.on("data", stop);
  },
  "wraps read": (req, keep) => {
    const read = req.read.bind(req);
    req.read = (size) => {
      const chunk = read(size) as Buffer | null;
      if (chunk !== null) keep(chunk);
      return chunk;
    };
  },
  "wraps emit": (req, keep) => {
    const emit = req.emit.bind(req);
    req.emit = (event: string, ...args: unknown[]) => {
      if (event === "data") keep(args[0] as Buffer);
      return emit(event, ...args);
    };
  },
  "wraps push": (req, keep) => {
    const push = req.push.bind(req);
    req.push = (chunk: Buffer | null) => {
      if (chunk !== null) keep(chunk);
      return push(chunk);
    };
  },
};

test.each(Object.keys(watchers))("chunks do not change for middleware that %s", async (way) => {
  const kept: Buffer[] = [];
  const copies: Buffer[] = [];
  const uploaded = upload((req, res) => {
    watchers[way]?.(req, (chunk) => {
      kept.push(chunk);
      copies.push(Buffer.from(chunk));
    });
    proxy.nodeHandler(req, res);
  }, framings["with its length"] ?? {});
  expect((await uploaded).equals(BODY)).toBe(true);
  expect(kept.length).toBeGreaterThan(0);
  expect(Buffer.concat(kept).equals(Buffer.concat(copies))).toBe(true);
});

test.each(["unshift", "push"] as const)(
  "bytes that middleware puts in front of a body with `%s` are sent, and do not change",
  async (method) => {
    start = Promise.resolve();
    // Open the upstream connection first, so that the bytes are sent immediately.
    await upload(proxy.nodeHandler, framings["in chunks"] ?? {});
    const front = Buffer.alloc(40_000, "front");
    const copy = Buffer.from(front);
    const uploaded = await upload((req, res) => {
      req[method](front);
      proxy.nodeHandler(req, res);
    }, framings["in chunks"] ?? {});
    expect(uploaded.equals(Buffer.concat([copy, BODY]))).toBe(true);
    expect(front.equals(copy)).toBe(true);
  },
);

test("a request is refused with a TypeError that names setEncoding if middleware reads its body as text", async () => {
  const answer = await upload((req, res) => {
    req.setEncoding("utf8");
    proxy.nodeHandler(req, res, (error) => res.writeHead(500).end(String(error)));
  }, framings["with its length"] ?? {});
  expect(answer.toString()).toMatch(/TypeError: .*setEncoding/);
});

// Fastify's `inject` loads an ES module with `require`, which Node supports from 22.12 on.
test.skipIf(!process.features.require_module)(
  "the payload that `inject` of Fastify sends to the proxy is not modified",
  async () => {
    const app = Fastify({ bodyLimit: BODY.length });
    app.addContentTypeParser("*", (_request, _payload, done) => done(null));
    app.post("/", ({ raw }, reply) => {
      reply.hijack();
      proxy.nodeHandler(raw, reply.raw);
    });
    const headers = { "content-type": "application/octet-stream" };
    for (let count = 0; count < 2; count++) {
      const response = await app.inject({ method: "POST", url: "/", headers, payload: BODY });
      expect(response.rawPayload.equals(BODY)).toBe(true);
    }
    expect(BODY).toHaveLength(12_000_000);
  },
);
