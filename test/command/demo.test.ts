import { spawn, spawnSync } from "node:child_process";
import { once } from "node:events";
import { text } from "node:stream/consumers";
import { gunzipSync } from "node:zlib";
import { describe, expect, test } from "vitest";
import { getRaw, listening, upstream } from "./_command.ts";

describe("--demo", () => {
  const hasCurl = spawnSync("curl", ["--version"]).status === 0;

  /** Runs a printed curl command in a shell, or sends the same request if curl is not installed. */
  async function runCurl(line: string): Promise<string> {
    if (hasCurl) {
      const child = spawn("sh", ["-c", line]);
      const closed = once(child, "close") as Promise<[number]>;
      const output = await text(child.stdout);
      expect([line, ...(await closed)]).toEqual([line, 0, null]);
      return output;
    }
    const url = line.split(" ").at(-1)?.replaceAll('"', "") ?? "";
    const init = line.includes(" -d ") ? { method: "POST", body: "hello" } : {};
    return (await fetch(url, init)).text();
  }

  test("every curl command in the demo's banner and on its first page works", async () => {
    const { proxy, origin } = await listening("--demo");
    const banner = proxy.stdout.match(/^ {2}curl .*$/gm) ?? [];
    const page = (await (await fetch(origin)).text()).match(/^ {2}curl .*$/gm) ?? [];
    expect([banner.length, page.length]).toEqual([5, 8]);
    const outputs: Record<string, string> = {};
    await Promise.all(
      Array.from(new Set([...banner, ...page]), async (line) => {
        const [, path = line] = line.replaceAll('"', "").split(origin);
        outputs[path] = await runCurl(line);
      }),
    );
    expect(outputs["/"]).toContain("This page came through fetchway");
    expect(outputs["/echo"]).toBe("hello");
    expect(outputs["/events"]?.match(/^data: /gm)).toHaveLength(5);
    expect(outputs["/gzip"]).toContain("Compressed by the upstream");
    expect(outputs["/slow?ms=2000"]).toBe("waited 2000 ms\n");
    expect(outputs["/status/418"]).toContain("teapot");
    expect(JSON.parse(outputs["/headers"] ?? "")).toMatchObject({
      method: "GET",
      url: "/headers",
      headers: { "x-forwarded-for": "127.0.0.1", "x-forwarded-host": new URL(origin).host },
    });
  });

  test("serves responses that proxies often get wrong: raw gzip, redirects, cookies, any status", async () => {
    const { origin } = await listening("--demo");
    const [{ headers }, gzipped] = await getRaw(`${origin}/gzip`);
    expect(headers["content-encoding"]).toBe("gzip");
    expect(gunzipSync(gzipped).toString()).toContain("not touched on the way");
    const redirect = await fetch(`${origin}/redirect`, { redirect: "manual" });
    expect([redirect.status, redirect.headers.get("location")]).toEqual([302, "/headers"]);
    expect((await fetch(`${origin}/cookies`)).headers.getSetCookie()).toHaveLength(3);
    const paths = ["/status/204", "/status/599", "/status/999", "/echo", "/no"];
    const responses = await Promise.all(paths.map((path) => fetch(origin + path)));
    expect(responses.map(({ status }) => status)).toEqual([204, 599, 400, 400, 404]);
  });

  test("gets the requests that no route matches, also beside a route for all paths with a condition", async () => {
    upstream.handler = (_, res) => res.end("the route");
    const { origin } = await listening(`--demo --route "/=${upstream.url} --when-method POST"`);
    const ask = async (method: string): Promise<string> => (await fetch(origin, { method })).text();
    expect(await ask("GET")).toContain("This page came through fetchway");
    expect(await ask("POST")).toBe("the route");
  });
});
