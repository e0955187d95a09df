/** Redirects that the proxy follows: the method, the repeated body, and the fields that must not be sent again. */
import { expect } from "vitest";
import { rfc } from "../conformance/rfc.ts";
import type { Tools } from "./_suite.ts";
import { type Script, Upstream } from "../helpers/upstream.ts";
import { within } from "../helpers/wait.ts";
import { chunk, type Header, lastChunk, request } from "../helpers/wire.ts";

/** Answers a request for "/" with this redirect, and other requests with 200 and the body of the request. */
function redirecting(status: number, location: string): Script {
  return async (call) => {
    await call.done;
    if (call.target === "/") call.reply(status, [["Location", location]], "moved");
    else call.reply(200, [["X-Final", call.target]], call.body);
  };
}

async function withOther(body: (other: Upstream) => Promise<void>): Promise<void> {
  const other = new Upstream();
  await other.listen();
  try {
    await body(other);
    expect(other.faults).toEqual([]);
  } finally {
    await other.stop();
  }
}

const secrets: Header[] = [
  ["Authorization", "Bearer client"],
  ["Cookie", "session=1"],
  ["X-Kept", "yes"],
];

function expectNoSecrets(names: string[]): void {
  expect(names).toContain("x-kept");
  for (const name of ["authorization", "cookie", "x-secret"]) expect(names).not.toContain(name);
}

export const redirects = {
  async "redirects are followed with the method and the body that the Fetch standard requires"(
    t: Tools,
  ): Promise<void> {
    rfc("9110-15.4-modifications");
    for (const [status, method, expected] of [
      [301, "POST", "GET"],
      [302, "POST", "GET"],
      [303, "PUT", "GET"],
      [302, "PUT", "PUT"],
      [301, "GET", "GET"],
      [308, "DELETE", "DELETE"],
    ] as const) {
      t.upstream.script = redirecting(status, "/final?q=%2F");
      const at = t.upstream.calls.length;
      const body = method === "POST" || method === "PUT" ? "a body" : undefined;
      const bytes = request(method, "/", [["Content-Type", "text/x-test"]], body);
      const answer = await t.ask(bytes, "following");
      expect(answer.status).toBe(200);
      expect(answer.get("x-final")).toBe("/final?q=%2F");
      const second = await t.upstream.call(at + 1);
      expect(second.method).toBe(expected);
      const keeps = expected === method && body !== undefined;
      expect(second.text).toBe(keeps ? body : "");
      if (body !== undefined) expect(second.names.includes("content-type")).toBe(keeps);
      if (!keeps) expect(second.names).not.toContain("transfer-encoding");
    }
  },

  async "following 307 and 308 sends the same body again"(t: Tools): Promise<void> {
    rfc("9110-15.4.8-method");
    const bytes = Buffer.from(Array.from({ length: 900 }, (_, i) => i % 256));
    for (const status of [307, 308]) {
      t.upstream.script = redirecting(status, "/final");
      const at = t.upstream.calls.length;
      const sized = await t.ask(request("POST", "/", [], bytes), "following");
      expect(sized.status).toBe(200);
      expect(sized.body).toEqual(bytes);
      const chunked = await t.ask(
        Buffer.concat([
          request("PUT", "/", [["Transfer-Encoding", "chunked"]]),
          chunk(bytes.subarray(0, 400)),
          chunk(bytes.subarray(400)),
          lastChunk,
        ]),
        "following",
      );
      expect(chunked.status).toBe(200);
      expect(chunked.body).toEqual(bytes);
      expect(t.upstream.calls.slice(at).map(({ method }) => method)).toEqual([
        "POST",
        "POST",
        "PUT",
        "PUT",
      ]);
    }
  },

  async "with a body over replayLimit the client gets the 307 itself, while a 302 is followed"(
    t: Tools,
  ): Promise<void> {
    const body = "x".repeat(1001);
    t.upstream.script = redirecting(307, "/final");
    const sized = await t.ask(request("POST", "/", [], body), "following");
    expect(sized).toMatchObject({ status: 307, text: "moved" });
    expect(sized.get("location")).toBe("/final");
    const bytes = request("POST", "/", [["Transfer-Encoding", "chunked"]]);
    const chunked = await t.ask(Buffer.concat([bytes, chunk(body), lastChunk]), "following");
    expect(chunked.status).toBe(307);
    expect(t.upstream.calls.map(({ length }) => length)).toEqual([1001, 1001]);
    t.upstream.script = redirecting(302, "/final");
    expect((await t.ask(request("POST", "/", [], body), "following")).status).toBe(200);
  },

  async "a 307 is not followed, but passed to the client, if it arrives before the whole request body is sent"(
    t: Tools,
  ): Promise<void> {
    t.upstream.script = (call) => call.reply(307, [["Location", "/final"]], "early");
    const client = await t.connect("following");
    client.send(request("POST", "/", [["Content-Length", "100"]]), "half");
    expect(await client.read()).toMatchObject({ status: 307, text: "early" });
    expect(t.upstream.calls).toHaveLength(1);
  },

  async "CVE-2023-45143, CVE-2024-30260: a redirect to another origin drops credentials for the rest of the chain"(
    t: Tools,
  ): Promise<void> {
    rfc("9110-15.4-modifications");
    await withOther(async (other) => {
      t.upstream.script = (call) =>
        call.target === "/"
          ? call.reply(307, [["Location", `${other.url}/b1`]])
          : call.reply(200, [], "home");
      other.script = (call) =>
        call.target === "/b1"
          ? call.reply(307, [["Location", "/b2"]])
          : call.reply(307, [["Location", `${t.upstream.url}/home`]]);
      const answer = await t.ask(request("POST", "/", secrets, "body"), "following");
      expect(answer).toMatchObject({ status: 200, text: "home" });
      const [first, home] = t.upstream.calls;
      expect(first?.get("authorization")).toBe("Bearer client");
      expect(first?.get("cookie")).toBe("session=1");
      expect(first?.get("x-secret")).toBe("of the first origin");
      const away = other.calls.map(({ target, names, text }) => {
        expectNoSecrets(names);
        return { target, text };
      });
      expect(away).toMatchObject([
        { target: "/b1", text: "body" },
        { target: "/b2", text: "body" },
      ]);
      expect(other.calls[0]?.get("host")).toBe(other.authority);
      expectNoSecrets(home?.names ?? []);
    });
  },

  async "a redirect to another origin goes to the client unless redirectTargets allows it"(
    t: Tools,
  ): Promise<void> {
    await withOther(async (other) => {
      for (const location of [
        `${other.url}/x`,
        `//${other.authority}/x`,
        "http://169.254.169.254/",
      ]) {
        t.upstream.script = redirecting(302, location);
        const answer = await t.ask(request("GET", "/", secrets), "sameOrigin");
        expect(answer).toMatchObject({ status: 302, text: "moved" });
        expect(answer.get("location")).toBe(location);
      }
      expect(other.calls).toHaveLength(0);
      t.upstream.script = redirecting(302, "/x");
      expect((await t.ask(request("GET", "/", secrets), "sameOrigin")).status).toBe(200);
      expect(t.upstream.calls.at(-1)?.get("cookie")).toBe("session=1");
    });
  },

  async "a redirect loop and too many redirects end with the last redirect going to the client"(
    t: Tools,
  ): Promise<void> {
    rfc("9110-15.4-cycles");
    t.upstream.script = (call) =>
      call.reply(302, [["Location", call.target === "/a" ? "/b" : "/a"]], call.target);
    expect(await t.ask(request("GET", "/a"), "following")).toMatchObject({
      status: 302,
      text: "/b",
    });
    expect(t.upstream.calls).toHaveLength(2);
    t.upstream.script = (call) => call.reply(302, [["Location", `${call.target}x`]], call.target);
    const answer = await t.ask(request("GET", "/1"), "following");
    expect(answer).toMatchObject({ status: 302, text: "/1xxxxx" });
  },

  async "a redirect that cannot be followed goes to the client"(t: Tools): Promise<void> {
    for (const location of [
      "http://",
      "javascript:alert(1)",
      "file:///etc/passwd",
      `http://user:secret@127.0.0.1:${t.upstream.port}/x`,
    ]) {
      t.upstream.script = redirecting(302, location);
      const answer = await t.ask(request("GET", "/"), "following");
      expect(answer).toMatchObject({ status: 302, text: "moved" });
    }
    expect(t.upstream.calls).toHaveLength(4);
  },

  async "a client that disconnects while a redirect is followed closes the upstream request"(
    t: Tools,
  ): Promise<void> {
    t.upstream.script = (call) => {
      if (call.target === "/") call.reply(302, [["Location", "/silent"]]);
    };
    const client = await t.connect("following");
    client.send(request("GET", "/"));
    const silent = await t.upstream.call(1);
    client.leave("RST");
    await within(silent.link.closed, "the upstream's connection closed");
  },
};
