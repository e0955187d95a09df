/**
 * Requests through undici: closed connections, clients that disconnect, and bodies whose length differs from the
 * announced one.
 */
import { type Agent } from "undici";
import { describe, expect, test } from "vitest";
import type { Transport } from "#fetchway";
import { createUndiciTransport } from "../../../runtimes/undici.ts";
import type { BodySource, Interceptor } from "../../../src/transport.ts";
import { createAgentTransport, errorTypeOf, through, untilFree, upstream } from "./_undici.ts";
import { until, within } from "../../helpers/wait.ts";

describe("connections that the upstream closes when they are reused", () => {
  const closes: Record<string, (options?: Agent.Options) => Transport> = {
    "the transport's own agent": () => createUndiciTransport(),
    "a given agent": () => createAgentTransport(),
  };

  test.each(
    Object.keys(closes).flatMap((whose) => ["FIN", "RST"].map((how) => [whose, how] as const)),
  )("%s: after %s, a GET is sent again, and a POST is not", async (whose, how) => {
    const send = through(closes[whose]?.());
    upstream.script = async (call) => {
      await call.done;
      if (call.link.calls.length === 1) call.reply(200);
      else if (how === "FIN") call.close();
      else call.reset();
    };
    await (await send("/")).text();
    await untilFree(send.transport);
    const again = await send("/again");
    expect(again.status).toBe(200);
    await again.text();
    expect(upstream.calls.map(({ target }) => target)).toEqual(["/", "/again", "/again"]);
    await (await send("/")).text();
    await untilFree(send.transport);
    const posted = await send("/post", { method: "POST", body: "x" });
    expect([posted.status, errorTypeOf(posted)]).toEqual([502, "connection_terminated"]);
    expect(upstream.calls.filter(({ target }) => target === "/post")).toHaveLength(1);
  });

  test("a GET on a new connection that is reset is not sent again", async () => {
    const send = through();
    upstream.script = (call) => call.reset();
    expect((await send("/")).status).toBe(502);
    expect(upstream.calls).toHaveLength(1);
  });
});

describe("when the client disconnects", () => {
  test("a request that waits for a connection is never sent", async () => {
    const send = through(createAgentTransport({ connections: 1 }));
    let answer: (() => void) | undefined;
    upstream.script = (call) => void (answer = () => call.reply(200, [], call.target));
    const first = send("/first");
    await upstream.call();
    const leaving = new AbortController();
    const second = send("/second", { signal: leaving.signal, method: "POST", body: "x" });
    const third = send("/third");
    leaving.abort();
    expect((await within(second, "the second response")).status).toBe(499);
    answer?.();
    expect(await (await first).text()).toBe("/first");
    await upstream.call(1);
    answer?.();
    expect(await (await third).text()).toBe("/third");
    expect(upstream.calls.map(({ target }) => target)).toEqual(["/first", "/third"]);
    expect(upstream.links).toHaveLength(1);
  });

  test("the connection of a request without a response is closed", async () => {
    const send = through();
    upstream.script = () => {};
    const leaving = new AbortController();
    const answer = send("/", { signal: leaving.signal });
    const call = await upstream.call();
    leaving.abort();
    expect((await answer).status).toBe(499);
    await within(call.link.closed, "the connection's close");
  });
});

describe("request bodies", () => {
  /** Sends a stream whose length an interceptor announces as `length`. */
  async function sendAs(length: number, ...chunks: (string | Error)[]): Promise<Response> {
    let isFirst = true;
    const body = new ReadableStream<Uint8Array>({
      async pull(controller) {
        const next = chunks.shift();
        // The proxy would measure a body that is available immediately, so send the rest only after the request.
        if (isFirst) isFirst = false;
        else await until(() => upstream.calls.length > 0, "the request's head");
        if (next === undefined) controller.close();
        else if (next instanceof Error) controller.error(next);
        else controller.enqueue(Buffer.from(next));
      },
    });
    // The agent's own check of the length is off, so only the proxy checks it.
    const send = through(createAgentTransport({ strictContentLength: false }), {
      interceptors: {
        attempt: [(next) => (request, scope) => next({ ...request, contentLength: length }, scope)],
      },
    });
    return send("/", { method: "POST", body, duplex: "half" });
  }

  test.each<[string, number, (string | Error)[]]>([
    ["too long", 5, ["123", "456"]],
    ["too short", 5, ["123"]],
    ["broken off", 5, ["123", new Error("gone")]],
  ])(
    "%s: a body that does not have the announced length aborts the request",
    async (_, length, chunks) => {
      upstream.script = async (call) => {
        await call.done;
        if (call.state === "complete") call.reply(200);
      };
      const answer = await sendAs(length, ...chunks);
      expect([answer.status, errorTypeOf(answer)]).toEqual([400, "http_request_error"]);
      const [call] = upstream.calls;
      await call?.done;
      expect(call?.state).not.toBe("complete");
    },
  );

  test("a body that has its Content-Length arrives", async () => {
    expect(await (await sendAs(6, "123", "456")).text()).toBe("123456");
  });
});

test("the client gets 400 if an interceptor sets a body whose `pipeTo` rejects", async () => {
  const body: BodySource = {
    whole: () => undefined,
    pipeTo: () => Promise.reject(new Error("torn")),
    stream: () => new ReadableStream(),
    cancel() {},
  };
  const replaceBody: Interceptor = (next) => (request, scope) => next({ ...request, body }, scope);
  const send = through(undefined, { interceptors: { request: [replaceBody] } });
  const response = await within(send("/", { method: "POST", body: "abc" }), "the response");
  expect([response.status, errorTypeOf(response)]).toEqual([400, "http_request_error"]);
});
