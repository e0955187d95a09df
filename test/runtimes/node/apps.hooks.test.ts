/** Exceptions and responses of hooks, in Express and on `node:http`. */
import express, { type NextFunction, type Request, type Response } from "express";
import { expect, test, vi } from "vitest";
import { createProxy } from "#fetchway";
import { useApps } from "../../helpers/apps.ts";
import { until } from "../../helpers/wait.ts";
import { request } from "../../helpers/wire.ts";

const apps = useApps();
const { upstream } = apps;

test("Express: the error handler gets an Error for any value that a hook throws", async () => {
  const errors: unknown[] = [];
  let thrown: unknown;
  const onRequest = (): never => {
    throw thrown;
  };
  const app = express()
    .use(createProxy({ target: upstream.url, onRequest }).nodeHandler)
    .use((error: unknown, _req: Request, res: Response, _next: NextFunction) => {
      errors.push(error);
      res.status(500).end("told");
    });
  const port = await apps.serve("node", app);
  const exception = new Error("in the hook");
  // If these values were passed to `next`, `undefined` would continue with the next handler, and "router" would leave
  // the router.
  for (thrown of [undefined, "router", exception]) {
    expect(await apps.ask(port, request("GET", "/"))).toMatchObject({ status: 500, text: "told" });
  }
  expect(errors.map((error) => (error as Error).cause)).toEqual([undefined, "router", undefined]);
  expect(errors.every((error) => error instanceof Error)).toBe(true);
  expect(errors[2]).toBe(exception);
  expect(upstream.calls).toEqual([]);
});

test("node:http: a hook's exception becomes 500 and is printed once, and the connection stays open", async () => {
  const print = vi.spyOn(console, "error").mockImplementation(() => {});
  const exception = new Error("10.0.0.1 is secret");
  const onRequest = (): Promise<never> => Promise.reject(exception);
  const port = await apps.serve(
    "node",
    createProxy({ target: upstream.url, onRequest }).nodeHandler,
  );
  const client = await apps.connect(port);
  for (const bytes of [request("POST", "/", [], "a body"), request("GET", "/")]) {
    client.send(bytes);
    expect(await client.read()).toMatchObject({ status: 500, text: "" });
    expect(print).toHaveBeenCalledExactlyOnceWith(exception);
    print.mockClear();
  }
  print.mockRestore();
});

test.each([false, true])(
  "node:http: after a response field that cannot be sent, the 500 is complete and has no field of that response (middleware: %s)",
  async (hasMiddleware) => {
    const print = vi.spyOn(console, "error").mockImplementation(() => {});
    const { nodeHandler } = createProxy({
      target: upstream.url,
      onResponse: ({ status, headers }) => {
        if (status === 203) headers.set("x-a", "\x01");
      },
    });
    const port = await apps.serve("node", (req, res) => {
      if (hasMiddleware) res.setHeader("x-request-id", "1");
      nodeHandler(req, res);
    });
    upstream.script = (call) =>
      call.target === "/bad"
        ? call.reply(
            203,
            [
              ["Set-Cookie", "a=b"],
              ["Date", "then"],
            ],
            "0123456789",
          )
        : call.reply(200, [], "good");
    const client = await apps.connect(port);
    client.send(request("GET", "/bad"));
    const bad = await client.read();
    expect(bad).toMatchObject({
      status: 500,
      reason: "Internal Server Error",
      text: "",
      cut: false,
    });
    expect(bad.all("set-cookie")).toEqual([]);
    expect(bad.get("date")).toMatch(/GMT$/);
    expect(bad.get("x-request-id")).toBe(hasMiddleware ? "1" : undefined);
    client.send(request("GET", "/good"));
    expect(await client.read()).toMatchObject({ status: 200, text: "good" });
    expect(print).toHaveBeenCalledOnce();
    print.mockRestore();
  },
);

test("node:http: if a hook responds to HEAD, the stream of its response is cancelled", async () => {
  let pulled = 0;
  let cancelled = 0;
  const proxy = createProxy({
    target: upstream.url,
    onRequest: () =>
      new Response(
        new ReadableStream({
          async pull(controller) {
            pulled++;
            await new Promise(setImmediate);
            controller.enqueue(new Uint8Array(1024));
          },
          cancel: () => void cancelled++,
        }),
        { headers: { "x-a": "b" } },
      ),
  });
  const client = await apps.connect(await apps.serve("node", proxy.nodeHandler));
  for (let count = 1; count < 3; count++) {
    client.send(request("HEAD", "/"));
    const answer = await client.read("HEAD");
    expect(answer).toMatchObject({ status: 200, length: 0 });
    expect(answer.get("x-a")).toBe("b");
    await until(() => cancelled >= count, "the cancellation");
    expect(cancelled).toBe(count);
    expect(pulled).toBeLessThan(100);
  }
});
