/** Cases about bodies to and from an app in the same process. */
import { H3 } from "h3";
import { Hono } from "hono";
import type { FetchTarget } from "../../../src/index.ts";
import {
  answering,
  assert,
  assertEqual,
  type Case,
  countBytes,
  createSource,
  gzip,
  LENGTH,
  mebibyte,
  read,
  settle,
  until,
} from "./_case.ts";

export const bodies: Record<string, Case> = {
  async "large bodies stream in both directions"(create) {
    for (const app of [
      new H3().post("/", (event) => new Response(event.req.body)),
      new Hono().post("/", (c) => new Response(c.req.raw.body)),
    ]) {
      const source = createSource();
      const response = await create({ target: app }).fetch(
        read("/", { method: "POST", body: source.stream, duplex: "half" }),
      );
      assert(source.taken < LENGTH, "all was taken before anything was read");
      assertEqual(await countBytes(response.body), LENGTH);
    }
  },

  async "an app that does not read pauses the client"(create) {
    const source = createSource();
    const gate = Promise.withResolvers<void>();
    const proxy = create({
      target: {
        async fetch(request) {
          await gate.promise;
          return new Response(String(await countBytes(request.body)));
        },
      },
    });
    const answer = proxy.fetch(read("/", { method: "POST", body: source.stream, duplex: "half" }));
    await until(() => source.taken > 0, "the first chunk");
    const taken = await settle(() => source.taken);
    assert(
      taken <= 2 * mebibyte,
      `${taken} bytes of the body were read, although the app does not read it`,
    );
    gate.resolve();
    assertEqual(await (await answer).text(), String(LENGTH));
  },

  async "a client that does not read pauses the app"(create) {
    const source = createSource();
    const proxy = create({ target: answering(() => new Response(source.stream)) });
    const response = await proxy.fetch(read("/"));
    const taken = await settle(() => source.taken);
    assert(
      taken <= 2 * mebibyte,
      `the app produced ${taken} bytes, although the client does not read them`,
    );
    assertEqual(await countBytes(response.body), LENGTH);
  },

  async "a response body that fails, or whose length differs from its Content-Length, never looks complete"(
    create,
  ) {
    const broken = (): Response => {
      const chunks = ["half"];
      return new Response(
        new ReadableStream({
          pull(controller) {
            const chunk = chunks.shift();
            if (chunk === undefined) throw new Error("secret");
            controller.enqueue(new TextEncoder().encode(chunk));
          },
        }),
      );
    };
    const sized = (length: number) => () => {
      const { body } = new Response("four");
      return new Response(body, { headers: { "content-length": String(length) } });
    };
    for (const answer of [broken, sized(3), sized(5), sized(2000)]) {
      const response = await create({ target: answering(answer) }).fetch(read("/"));
      const outcome = await response.text().then(
        (text) => `whole: ${text}`,
        () => "failed",
      );
      assertEqual(outcome, "failed");
    }
    const whole = await create({ target: answering(sized(4)) }).fetch(read("/"));
    assertEqual(await whole.text(), "four");
  },

  async "a body that stalls fails after `idleTimeout`, or when `signal` aborts, although its app ignores the abort"(
    create,
  ) {
    const controller = new AbortController();
    for (const options of [{ idleTimeout: 30 }, { signal: controller.signal }]) {
      let cancelled = false;
      let ends = 0;
      const stalling = (): Response =>
        new Response(
          new ReadableStream({
            start: (out) => out.enqueue(new Uint8Array(1)),
            cancel: () => void (cancelled = true),
          }),
        );
      const proxy = create({
        target: answering(stalling),
        onRequestEnd: () => void ends++,
        ...options,
      });
      const response = await proxy.fetch(read("/"));
      const outcome = response.text().then(String, () => "failed");
      if (options.signal) controller.abort();
      assertEqual(await outcome, "failed");
      await until(() => cancelled && ends === 1, "the end of the exchange");
    }
  },

  async "a failing request body never looks complete to the app"(create) {
    const outcomes: string[] = [];
    let calls = 0;
    const target: FetchTarget = {
      async fetch(request) {
        calls++;
        outcomes.push(await request.text().then(String, () => "failed"));
        return new Response();
      },
    };
    for (const headers of [{}, { "content-length": "10" }]) {
      const chunks = ["half"];
      const body = new ReadableStream<Uint8Array>({
        async pull(controller) {
          const chunk = chunks.shift();
          if (chunk !== undefined) return controller.enqueue(new TextEncoder().encode(chunk));
          await new Promise((resolve) => setTimeout(resolve, 50));
          throw new Error("broken");
        },
      });
      const request = read("/", { method: "POST", body, headers, duplex: "half" });
      // The response is not checked, because the app may answer although the body is wrong.
      await (await create({ target }).fetch(request)).text();
    }
    // The app need not be called for every body: a body of unknown length may fail earlier.
    assert(calls > 0, "the app was never called");
    await until(() => outcomes.length === calls, "the app's reading to end");
    assertEqual(new Set(outcomes).has("failed") && new Set(outcomes).size, 1);
  },

  async "an encoded body of the app passes unchanged"(create) {
    const bytes = await gzip("a body that compresses well; ".repeat(100));
    const headers = {
      "content-encoding": "gzip",
      "content-length": `${bytes.length}`,
      etag: '"x"',
    };
    // Only workerd reads `encodeBody`: "manual" means that the bytes are already encoded.
    const init: ResponseInit & { encodeBody: "manual" } = { headers, encodeBody: "manual" };
    for (const options of [{}, { idleTimeout: 10_000 }]) {
      const target = answering(() => new Response(bytes, init));
      const response = await create({ target, ...options }).fetch(read("/"));
      for (const [name, value] of Object.entries(headers)) {
        assertEqual(response.headers.get(name), value);
      }
      assertEqual([...new Uint8Array(await response.arrayBuffer())], [...bytes]);
    }
  },
};
