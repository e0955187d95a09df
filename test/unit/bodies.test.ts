import { brotliCompressSync, deflateSync, gzipSync, zstdCompressSync } from "node:zlib";
import { describe, expect, test, vi } from "vitest";
import {
  type ChangeBody,
  transformJson,
  transformText,
  type TransformOptions,
} from "../../src/bodies.ts";
import { findDecodable, narrowAcceptEncoding } from "../../src/body/codings.ts";
import { ResponseBody } from "../../src/body/responsebody.ts";
import type { UpstreamResponse } from "../../src/transport/message.ts";
import {
  answering,
  bytes,
  fakeRequest,
  fakeResponse,
  fakeScope,
  type Given,
  run,
  streamOf,
  textOf,
  to,
} from "../helpers/fakes.ts";

const upper = (text: string): string => text.toUpperCase();

/** Sends a response through an interceptor, and returns the resulting response. */
function pass(
  interceptor: ReturnType<typeof transformText>,
  response: Given<UpstreamResponse>,
  request: Parameters<typeof fakeRequest>[0] = {},
): Promise<UpstreamResponse> {
  const headers = response.headers ?? ["Content-Type", "text/plain"];
  const send = interceptor(async () => fakeResponse({ ...response, headers }));
  return send(fakeRequest(request), fakeScope());
}

const refused = { code: "http_protocol_error", status: 502 };

describe("narrowAcceptEncoding", () => {
  test.each([
    [undefined, "identity"],
    ["", "identity"],
    ["gzip", "gzip"],
    ["GZIP;q=0.5, x-rot13", "GZIP;q=0.5"],
    ["identity;q=0, x-rot13;q=1", "identity"],
    ["deflate , gzip; q=0", "deflate, gzip; q=0"],
    ["constructor, dcb", "identity"],
  ])("narrows the Accept-Encoding %j to %j", async (given, narrowed) => {
    expect(narrowAcceptEncoding(given, await findDecodable())).toBe(narrowed);
  });

  test("`*` in Accept-Encoding matches the codings that the runtime can decode and that have no separate weight", async () => {
    const decodable = await findDecodable();
    expect(narrowAcceptEncoding("*;q=0.3", decodable).split(", ")).toContain("gzip;q=0.3");
    const narrowed = narrowAcceptEncoding("gzip;q=0, *", decodable);
    expect(narrowed.split(", ").filter((member) => member.startsWith("gzip"))).toEqual([
      "gzip;q=0",
    ]);
    expect(narrowed).not.toContain("*");
  });
});

describe("transformText", () => {
  test("decodes each content coding that `DecompressionStream` supports, and several codings of one body", async () => {
    const plain = Buffer.from("grüße");
    const bodies: Record<string, Buffer> = {
      gzip: gzipSync(plain),
      "X-GZIP": gzipSync(plain),
      deflate: deflateSync(plain),
      "gzip, deflate": deflateSync(gzipSync(plain)),
      identity: plain,
    };
    const formats: [string, string, Buffer][] = [
      ["brotli", "br", brotliCompressSync(plain)],
      ["zstd", "zstd", zstdCompressSync(plain)],
    ];
    for (const [format, coding, body] of formats) {
      try {
        new DecompressionStream(format as CompressionFormat);
      } catch {
        continue;
      }
      bodies[coding] = body;
    }
    for (const [coding, body] of Object.entries(bodies)) {
      const headers = ["Content-Type", "text/html", "Content-Encoding", coding];
      const changed = await pass(transformText(upper), { headers, body: new Uint8Array(body) });
      expect(await textOf(changed), coding).toBe("GRÜSSE");
      expect(changed.headers).toEqual(["Content-Type", "text/html", "Content-Length", "7"]);
    }
  });

  test('refuses an unreadable body, or with `unreadable: "pass"` passes it on with unchanged fields', async () => {
    const plain = ["Content-Type", "text/plain", "ETag", '"a"'];
    const cases: [headers: string[], body: Uint8Array][] = [
      [[...plain, "Content-Encoding", "x-rot13"], bytes("nop")],
      [[...plain, "Content-Encoding", "gzip"], bytes("never gzipped")],
      [[...plain, "Content-Encoding", "gzip"], new Uint8Array(gzipSync("cut")).subarray(0, 12)],
      [plain, Uint8Array.of(0x67, 0xfc)],
      [["Content-Type", "text/plain; charset=x-none"], bytes("a")],
    ];
    for (const [headers, body] of cases) {
      const change = vi.fn(upper);
      await expect(pass(transformText(change), { headers, body })).rejects.toMatchObject(refused);
      const passing = transformText(change, { unreadable: "pass" });
      const passed = await pass(passing, { headers, body });
      expect(passed.headers).toEqual(headers);
      expect(passed.body?.whole()).toEqual(body);
      expect(change).not.toHaveBeenCalled();
    }
  });

  test("decodes the text with the charset of Content-Type, and sends it as UTF-8", async () => {
    const headers = ["Content-Type", 'text/html; charset="ISO-8859-1"; x=y'];
    const changed = await pass(transformText(upper), { headers, body: Uint8Array.of(0xe4) });
    expect(await textOf(changed)).toBe("Ä");
    expect(changed.headers).toContain("text/html; charset=utf-8; x=y");
  });

  test('a body longer than `maxBytes`, encoded or decoded, is refused, or with `tooLarge: "pass"` passed on unchanged', async () => {
    const gzip = ["Content-Type", "text/plain", "Content-Encoding", "gzip"];
    const bomb = new Uint8Array(gzipSync(Buffer.alloc(10_000_000)));
    const cases: [
      body: () => Uint8Array<ArrayBuffer> | ReadableStream<Uint8Array>,
      headers?: string[],
    ][] = [
      [() => bytes("x".repeat(101))],
      [() => streamOf(["x".repeat(60), "y".repeat(60), "z"])],
      [() => bomb.slice(), gzip],
    ];
    for (const [body, headers] of cases) {
      const maxBytes = headers === undefined ? 100 : 50_000;
      const init = { body: body(), ...(headers && { headers }) };
      await expect(pass(transformText(upper, { maxBytes }), init)).rejects.toMatchObject(refused);
      const passing = transformText(upper, { maxBytes, tooLarge: "pass" });
      const passed = await pass(passing, { ...init, body: body() });
      const given = await new Response(body() as BodyInit).bytes();
      expect(await new Response(passed.body?.stream()).bytes()).toEqual(given);
      if (headers) expect(passed.headers).toEqual(headers);
    }
    const exact = transformText(upper, { maxBytes: 100 });
    expect(await textOf(await pass(exact, { body: bytes("x".repeat(100)) }))).toHaveLength(100);
  });

  test('CVE-2026-22036: a body with more than 5 content codings is refused, or with `unreadable: "pass"` passed on unchanged', async () => {
    let body = new Uint8Array(Buffer.from("text"));
    for (let coding = 0; coding < 5; coding++) body = new Uint8Array(gzipSync(body));
    const coded = (count: number): string[] => [
      "Content-Type",
      "text/plain",
      "Content-Encoding",
      Array(count).fill("gzip").join(", "),
    ];
    const five = await pass(transformText(upper), { headers: coded(5), body });
    expect(await textOf(five)).toBe("TEXT");
    for (const count of [6, 3000]) {
      const init = { headers: coded(count), body: bytes("never read") };
      const refusing = pass(transformText(upper), init);
      await expect(refusing).rejects.toMatchObject(refused);
      await expect(refusing).rejects.toThrow("has more than 5 content codings");
      const passed = await pass(transformText(upper, { unreadable: "pass" }), init);
      expect(passed.headers).toEqual(coded(count));
      expect(await textOf(passed)).toBe("never read");
    }
  });

  test("CVE-2026-22036: `maxBytes` limits the bytes that the decoding of each content coding yields", async () => {
    // A file name of 1 MB in the inner gzip header makes the result of the first decoding longer than that of the
    // second.
    const inner = gzipSync("text");
    inner[3] = 8;
    const named = [inner.subarray(0, 10), Buffer.alloc(1_000_000, "x"), Buffer.from([0])];
    const body = new Uint8Array(gzipSync(Buffer.concat([...named, inner.subarray(10)])));
    expect(body.byteLength).toBeLessThan(5000);
    const headers = ["Content-Type", "text/plain", "Content-Encoding", "gzip, gzip"];
    const changed = await pass(transformText(upper), { headers, body: body.slice() });
    expect(await textOf(changed)).toBe("TEXT");
    const limited = pass(transformText(upper, { maxBytes: 5000 }), { headers, body });
    await expect(limited).rejects.toMatchObject(refused);
  });

  test("a body that breaks off is refused, and so is a body over `maxBytes`, whose rest is cancelled", async () => {
    const broken = new ReadableStream<Uint8Array>({
      start(controller) {
        controller.enqueue(bytes("half"));
        controller.error(new Error("reset"));
      },
    });
    await expect(pass(transformText(upper), { body: broken })).rejects.toMatchObject({
      code: "http_response_incomplete",
    });
    const cancel = vi.fn();
    const endless = new ReadableStream<Uint8Array>({
      pull: (controller) => controller.enqueue(bytes("x".repeat(100))),
      cancel,
    });
    const refusing = pass(transformText(upper, { maxBytes: 500 }), { body: endless });
    await expect(refusing).rejects.toMatchObject(refused);
    await vi.waitFor(() => expect(cancel).toHaveBeenCalledOnce());
  });

  test("the response to HEAD has the fields of the transformed response to GET, without Content-Length", async () => {
    const headers = ["Content-Type", "text/html", "Content-Length", "9", "ETag", '"a"'];
    const head = await pass(transformText(upper), { headers }, { method: "HEAD" });
    expect(head.headers).toEqual(["Content-Type", "text/html", "ETag", 'W/"a"']);
    const image = ["Content-Type", "image/png", "Content-Length", "9"];
    const other = await pass(transformText(upper), { headers: image }, { method: "HEAD" });
    expect(other.headers).toEqual(image);
  });

  test("the response is unchanged if the app's function returns undefined", async () => {
    const headers = ["Content-Type", "text/html", "Content-Encoding", "gzip", "ETag", '"a"'];
    const body = new Uint8Array(gzipSync("a"));
    const passed = await pass(
      transformText(() => undefined),
      { headers, body },
    );
    expect(passed.headers).toEqual(headers);
    expect(passed.body?.whole()).toEqual(body);
  });

  test("a response that is left unchanged keeps its trailer fields, except those that its Connection names", async () => {
    const body = new ResponseBody(fakeScope(), { pause() {}, resume() {}, cancel() {} });
    body.push(bytes("a"));
    body.end(["X-Sum", "1", "X-Hop", "2"]);
    const headers = ["Content-Type", "text/plain", "Connection", "close", "connection", "x-hop"];
    const passed = await pass(
      transformText(() => undefined),
      { headers, body },
    );
    expect(passed.body?.trailers).toEqual(["X-Sum", "1"]);
  });

  test("the app's function gets the status, the path and the fields, and its exception rejects the call", async () => {
    const seen = vi.fn<ChangeBody<string>>((text, response, request) => {
      if (request.path === "/fail") throw new Error("the app's");
      return `${text} ${response.status} ${request.method} ${request.path} ${request.headers.get("x-a")}`;
    });
    const request = { path: "/b?c", headers: ["X-A", "1"] };
    const changed = await pass(transformText(seen), { status: 404, body: bytes("a") }, request);
    expect(await textOf(changed)).toBe("a 404 GET /b?c 1");
    const failing = pass(transformText(seen), { body: bytes("a") }, { path: "/fail" });
    await expect(failing).rejects.toThrow("the app's");
    const wrong = transformText((() => 5) as never);
    await expect(pass(wrong, { body: bytes("a") })).rejects.toThrow("must return a string");
    const headers = ["Content-Type", "application/json"];
    for (const value of [() => {}, Symbol("a"), { toJSON() {} }]) {
      const broken = pass(
        transformJson(() => value),
        { headers, body: bytes("{}") },
      );
      await expect(broken).rejects.toThrow(
        "transformJson must return a value that JSON can represent",
      );
    }
  });

  test("event streams and upgrades are not changed", async () => {
    const headers = ["Content-Type", "text/event-stream"];
    const response = await pass(transformText(upper), { headers, body: streamOf(["data: a"]) });
    expect(await textOf(response)).toBe("data: a");
    const next = vi.fn(async () => fakeResponse({ status: 101 }));
    const upgrade = fakeRequest({ upgrade: "websocket", headers: ["Accept-Encoding", "x-rot13"] });
    await transformText(upper)(next)(upgrade, fakeScope());
    expect(next.mock.calls).toEqual([[upgrade, expect.anything()]]);
  });

  test("only responses with a media type in `types` are transformed, and `ranges: true` forwards the field Range", async () => {
    const html = transformText(upper, { types: ["text/HTML", "application/*.v1+json"] });
    const body = (): Uint8Array => bytes("a");
    const typed = async (type: string): Promise<string> =>
      textOf(await pass(html, { headers: ["Content-Type", type], body: body() }));
    expect(await typed("text/html;charset=utf-8")).toBe("A");
    expect(await typed("application/x.v1+json")).toBe("A");
    expect(await typed("application/xxv1+json")).toBe("a");
    expect(await typed("text/html5")).toBe("a");
    const ranged = transformText(upper, { ranges: true });
    const next = vi.fn(async () => fakeResponse());
    await ranged(next)(fakeRequest({ headers: ["Range", "bytes=0-1"] }), fakeScope());
    expect(next).toHaveBeenCalledWith(
      expect.objectContaining({ headers: ["Range", "bytes=0-1", "Accept-Encoding", "identity"] }),
      expect.anything(),
    );
  });

  test("a request that follows a redirect to another origin keeps the narrowed Accept-Encoding", async () => {
    const transport = answering(to("http://other.test/"), { status: 200 });
    const interceptors = { request: [transformText(upper)] };
    const options = { followRedirects: true, redirectTargets: "any" as const, interceptors };
    await run({ headers: ["Accept-Encoding", "gzip, x-rot13"] }, { transport, options });
    const sent = transport.hops.map(
      ({ headers }) => headers[headers.indexOf("Accept-Encoding") + 1],
    );
    expect(sent).toEqual(["gzip", "gzip"]);
  });

  test.each<[options: object, message: RegExp]>([
    [{ maxBites: 5 }, /`maxBites`: there is no such option; did you mean `maxBytes`/],
    [{ maxBytes: -1 }, /`maxBytes`: use a number of bytes/],
    [{ tooLarge: "drop" }, /`tooLarge`: use "refuse" or "pass"/],
    [{ types: "text/html" }, /`types`: use an array of media types/],
  ])("the options %j are refused, and the error names the fix", (options, message) => {
    expect(() => transformText(upper, options as TransformOptions)).toThrow(message);
    expect(() => transformJson((value) => value, options as TransformOptions)).toThrow(message);
  });

  test("a transform that is not a function is refused", () => {
    expect(() => transformText("a" as never)).toThrow(/transformText needs a function/);
    expect(() => transformText(upper, null as never)).toThrow(/must be an object/);
  });
});

describe("transformJson", () => {
  const headers = ["Content-Type", "application/problem+json"];

  test("gives the parsed JSON to the app's function, and sends the value that it returns", async () => {
    const hide = transformJson<{ a: number; b?: number }>(({ a }) => ({ a }));
    const changed = await pass(hide, { headers, body: bytes('\ufeff{"a":1,"b":2}') });
    expect(await textOf(changed)).toBe('{"a":1}');
    expect(changed.headers).toEqual([...headers, "Content-Length", "7"]);
  });

  test("invalid JSON is refused, or with `unreadable` passed on, and a body of another media type is not read", async () => {
    const init = (): Given<UpstreamResponse> => ({ headers, body: bytes("{") });
    const change = (): number => 1;
    await expect(pass(transformJson(change), init())).rejects.toMatchObject(refused);
    const passing = transformJson(change, { unreadable: "pass" });
    expect(await textOf(await pass(passing, init()))).toBe("{");
    expect(await textOf(await pass(transformJson(change), { body: bytes("{") }))).toBe("{");
  });

  test("the response is unchanged if the app's function returns undefined", async () => {
    const unchanged = await pass(
      transformJson(() => undefined),
      { headers, body: bytes(" 1 ") },
    );
    expect(await textOf(unchanged)).toBe(" 1 ");
  });
});
