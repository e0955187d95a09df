/** In every framework, the changes that an app's middleware makes before and after the proxy take effect. */
import { expect, test } from "vitest";
import type { Apps } from "../../helpers/apps.ts";
import { within } from "../../helpers/wait.ts";
import { chunk, request } from "../../helpers/wire.ts";

export type Before = (request: Request) => void;
export type After = (response: Response) => Response | Promise<Response>;

/** Serves an app with this middleware around one proxied route; resolves to its port. */
export type Serve = (before: Before, after: After) => Promise<number>;

const nothing: Before = () => {};
const same: After = (response) => response;

/** Adds tests that middleware has the same effects on a proxied route as on any other route. */
export function addMiddlewareTests(apps: Apps, serve: Serve): void {
  const { upstream } = apps;

  test("the upstream gets the header fields that middleware has set and appended, and not those it has deleted", async () => {
    const port = await serve(({ headers }) => {
      headers.set("x-user", "alice");
      headers.append("x-list", "2");
      headers.delete("x-secret");
    }, same);
    const bytes = request(
      "POST",
      "/",
      [
        ["X-User", "mallory"],
        ["X-List", "1"],
        ["X-Secret", "s"],
      ],
      "body",
    );
    expect(await apps.ask(port, bytes)).toMatchObject({ status: 200, text: "body" });
    const call = apps.only();
    expect(call.all("x-user")).toEqual(["alice"]);
    expect(call.all("x-list").join(", ")).toBe("1, 2");
    expect(call.all("x-secret")).toEqual([]);
  });

  test("a Cookie header that middleware deletes does not reach the upstream", async () => {
    const port = await serve(({ headers }) => headers.delete("cookie"), same);
    await apps.ask(port, request("GET", "/", [["Cookie", "session=1"]]));
    expect(apps.only().all("cookie")).toEqual([]);
  });

  test("middleware can read and change the response headers", async () => {
    upstream.script = (call) =>
      call.reply(
        200,
        [
          ["Set-Cookie", "a=1"],
          ["Set-Cookie", "b=2"],
          ["Server", "x"],
          ["X-Kept", "k"],
        ],
        "body",
      );
    let seen: unknown;
    const port = await serve(nothing, (response) => {
      seen = [response.headers.getSetCookie(), response.headers.get("server"), response.ok];
      response.headers.delete("server");
      response.headers.append("set-cookie", "c=3");
      response.headers.set("x-after", "yes");
      return response;
    });
    const answer = await apps.ask(port, request("GET", "/"));
    expect(seen).toEqual([["a=1", "b=2"], "x", true]);
    expect(answer.all("set-cookie")).toEqual(["a=1", "b=2", "c=3"]);
    expect(answer.all("server")).toEqual([]);
    expect(answer.get("x-after")).toBe("yes");
    expect(answer.get("x-kept")).toBe("k");
    expect(answer.text).toBe("body");
  });

  test("middleware gets an instance of Response with an unread stream as its body", async () => {
    let checks: unknown[] = [];
    const port = await serve(nothing, (response) => {
      const tag = Object.prototype.toString.call(response);
      checks = [
        response instanceof Response,
        tag,
        response.bodyUsed,
        response.body instanceof ReadableStream,
      ];
      return response;
    });
    await apps.ask(port, request("POST", "/", [], "body"));
    expect(checks).toEqual([true, "[object Response]", false, true]);
  });

  test("middleware can replace the status and pass the body on as a stream", async () => {
    const port = await serve(
      nothing,
      ({ status, body, headers }) => new Response(body, { status: status + 3, headers }),
    );
    const answer = await apps.ask(port, request("POST", "/", [["X-Id", "7"]], "body"));
    expect(answer).toMatchObject({ status: 203, text: "body" });
    expect(answer.get("x-id")).toBe("7");
  });

  test("middleware can use the response as the init of another Response", async () => {
    const port = await serve(nothing, (response) => new Response(response.body, response));
    const answer = await apps.ask(port, request("POST", "/", [["X-Id", "7"]], "body"));
    expect(answer).toMatchObject({ status: 200, text: "body" });
    expect(answer.get("x-id")).toBe("7");
  });

  test("middleware can read the response body as text, and replace it", async () => {
    const port = await serve(nothing, async (response) => {
      const text = await response.text();
      expect(response.bodyUsed).toBe(true);
      return new Response(text.toUpperCase());
    });
    for (const body of ["small", "large ".repeat(100_000)]) {
      const answer = await apps.ask(port, request("POST", "/", [], body));
      expect(answer.text === body.toUpperCase()).toBe(true);
    }
  });

  test("middleware can pipe the response body through a transform", async () => {
    const port = await serve(nothing, (response) => {
      const upper = new TransformStream<Uint8Array, Uint8Array>({
        transform: (piece, controller) =>
          controller.enqueue(
            new TextEncoder().encode(new TextDecoder().decode(piece).toUpperCase()),
          ),
      });
      return new Response(response.body?.pipeThrough(upper) ?? null);
    });
    for (const body of ["small", "large ".repeat(100_000)]) {
      const answer = await apps.ask(port, request("POST", "/", [], body));
      expect(answer.text === body.toUpperCase()).toBe(true);
    }
  });

  test("after middleware has read a clone of the response, the client gets the whole response", async () => {
    let cloned = "";
    const port = await serve(nothing, async (response) => {
      const clone = response.clone();
      expect(clone.headers.get("x-id")).toBe("7");
      cloned = await clone.text();
      return response;
    });
    for (const body of ["small", "large ".repeat(20_000)]) {
      const answer = await apps.ask(port, request("POST", "/", [["X-Id", "7"]], body));
      expect(answer.get("x-id")).toBe("7");
      expect(answer.text === body).toBe(true);
      expect(cloned === body).toBe(true);
    }
  });

  test("the upstream's connection is closed when middleware discards the response", async () => {
    // This response has no Content-Length, because Hono would copy that field to the new response.
    upstream.script = (call) =>
      call.write("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", chunk("half"));
    const port = await serve(nothing, async (response) => {
      await response.body?.cancel();
      return new Response("instead");
    });
    const answer = await apps.ask(port, request("GET", "/"));
    expect(answer).toMatchObject({ text: "instead", cut: false });
    await within(apps.only().link.closed, "the upstream's connection closed");
  });
}
