import { describe, expect, test, vi } from "vitest";
import { WebIncoming } from "../../../src/request/incoming.ts";
import { StreamBody } from "../../../src/body/stream.ts";
import { UnframedBody } from "../../../src/body/unframed.ts";

describe("WebIncoming", () => {
  test("reads method, path, authority, scheme, fields and body of a Request", () => {
    const request = new Request("https://shop.test:8443/a?b", {
      method: "POST",
      headers: [
        ["X-B", "1"],
        ["x-a", "2"],
        ["x-b", "3"],
      ],
      body: "hello",
    });
    const incoming = new WebIncoming(request, "192.0.2.7");
    expect(incoming).toMatchObject({
      method: "POST",
      path: "/a?b",
      authority: "shop.test:8443",
      secure: true,
      address: "192.0.2.7",
    });
    expect(incoming.headers).toEqual(expect.arrayContaining(["x-a", "2", "x-b", "1, 3"]));
    expect(incoming.body).toBeInstanceOf(UnframedBody);
    expect((incoming.body as UnframedBody).stream()).toBe(request.body);
    expect(incoming.request()).toBe(request);
    expect(incoming.version()).toBe("1.1");
    expect(new WebIncoming(new Request("http://a.test"), undefined, "2.0").version()).toBe("2.0");
  });

  test.each(["GET", "HEAD"])("does not read the property `body` of a %s request", (method) => {
    const body = vi.fn();
    const request = { url: "http://a.test/", method, headers: new Headers(), bodyUsed: false };
    Object.defineProperty(request, "body", { get: body });
    expect(new WebIncoming(request as Request, undefined).body).toBeNull();
    expect(body).not.toHaveBeenCalled();
  });

  test.each([
    ["Content-Length", "5"],
    ["Transfer-Encoding", "chunked"],
  ])("passes on the request's own stream if the request has %s", (...field) => {
    const headers = [field];
    const request = new Request("http://a.test/", { method: "POST", headers, body: "hello" });
    const { body } = new WebIncoming(request, undefined);
    expect(body).toBeInstanceOf(StreamBody);
    expect(body).not.toBeInstanceOf(UnframedBody);
    expect(body?.stream()).toBe(request.body);
    expect(body?.length).toBe(field[0] === "Content-Length" ? 5 : undefined);
  });

  test("has the body null for a request without a body, also if the method allows a body", () => {
    const request = new Request("http://a.test/", { method: "DELETE" });
    expect(new WebIncoming(request, undefined).body).toBeNull();
  });

  test("throws a TypeError that names the fix if the body was already read", async () => {
    const request = new Request("http://a.test/", { method: "POST", body: "x" });
    expect(() => new WebIncoming(request, undefined)).not.toThrow();
    await request.text();
    const read = (): unknown => new WebIncoming(request, undefined);
    expect(read).toThrow(TypeError);
    expect(read).toThrow(/already been read.*before reading it.*request\.clone\(\).*new Request\(/);
  });
});

describe("a client's disconnect", () => {
  function incoming(): { controller: AbortController; request: Request; web: WebIncoming } {
    const controller = new AbortController();
    const request = new Request("http://a.test/", { signal: controller.signal });
    return { controller, request, web: new WebIncoming(request, undefined) };
  }

  test("calls the listener when the client disconnects", () => {
    const { controller, web } = incoming();
    const handleEvent = vi.fn();
    web.listen({ handleEvent });
    expect(handleEvent).not.toHaveBeenCalled();
    controller.abort();
    expect(handleEvent).toHaveBeenCalledOnce();
  });

  test("calls the listener immediately if the client has already disconnected", () => {
    const { controller, web } = incoming();
    controller.abort();
    const handleEvent = vi.fn();
    web.listen({ handleEvent });
    expect(handleEvent).toHaveBeenCalledOnce();
  });

  test("leaves no listener after `unlisten`", () => {
    const { controller, request, web } = incoming();
    const remove = vi.spyOn(request.signal, "removeEventListener");
    const listener = { handleEvent: vi.fn() };
    web.listen(listener);
    web.unlisten(listener);
    controller.abort();
    expect(listener.handleEvent).not.toHaveBeenCalled();
    expect(remove).toHaveBeenCalledExactlyOnceWith("abort", listener);
  });
});
