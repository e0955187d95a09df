import { inspect } from "node:util";
import { describe, expect, test } from "vitest";
import { toHookRequest } from "../../../runtimes/node/hookrequest.ts";

const hookRequest = (method = "GET", host = "A.test:80", path = "/a b?c#d"): Request =>
  toHookRequest("http", host, { method, path, headers: ["X-A", "1", "x-a", "2"] });

describe("the Request that functions of the app get", () => {
  test("has the members of Node's class, with the same values", () => {
    const request = hookRequest("POST");
    const headers: [string, string][] = [["x-a", "1, 2"]];
    const native = new Request("http://A.test:80/a b?c#d", { method: "POST", headers });
    for (const name of Object.getOwnPropertyNames(Request.prototype) as (keyof Request)[]) {
      if ((name as string) === "constructor") continue;
      const [own, other] = [request[name], native[name]];
      const isValue = typeof other !== "function" && typeof other !== "object";
      if (isValue) expect(own, name).toBe(other);
      else expect(typeof own, name).toBe(typeof other);
    }
    expect(Array.from(request.headers)).toEqual(headers);
    expect(request).toBeInstanceOf(Request);
    expect(request.signal.aborted).toBe(false);
    expect(inspect(request)).toContain("http://a.test/a%20b?c#d");
  });

  test("returns the same `headers` and `signal` at each read", () => {
    const request = hookRequest();
    expect(request.headers).toBe(request.headers);
    expect(request.signal).toBe(request.signal);
  });

  test("has no body", async () => {
    expect(await hookRequest("POST").text()).toBe("");
    expect(hookRequest("POST").body).toBeNull();
  });

  test("can be cloned and copied, with the changed header fields", () => {
    const request = hookRequest("PUT");
    expect(request.signal.aborted).toBe(false);
    request.headers.set("x-a", "3");
    for (const copy of [new Request(request.clone()), new Request(request.url, request)]) {
      expect(copy).toMatchObject({ method: "PUT", url: "http://a.test/a%20b?c#d" });
      expect(copy.headers.get("x-a")).toBe("3");
    }
  });

  test("can have a method that the class `Request` forbids", () => {
    expect(hookRequest("TRACE").method).toBe("TRACE");
    expect(hookRequest("TRACE").clone().method).toBe("TRACE");
  });

  test("takes neither the path from `Host`, nor the authority from the path", () => {
    expect(hookRequest("GET", "a.test/x").url).toBe("http://_invalid_/a%20b?c#d");
    expect(hookRequest("OPTIONS", "a.test", "*").url).toBe("http://a.test/");
    expect(hookRequest("GET", "a.test", "@b.test/").url).toBe("http://a.test/");
  });
});
