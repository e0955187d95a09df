/** Bodies that are changed by `transformText` of fetchway/bodies. The setup turns text into upper case. */
import { gunzipSync, gzipSync } from "node:zlib";
import { expect } from "vitest";
import type { Answer } from "../helpers/client.ts";
import { mebibyte } from "../helpers/large.ts";
import type { Tools } from "./_suite.ts";
import { chunk, request, type Header } from "../helpers/wire.ts";
import { growth } from "./large.ts";

const text = "grüße; ".repeat(500);
const large = "a text of more than the limit; ".repeat(3000);
const accept: Header = ["Accept-Encoding", "x-rot13, gzip;q=0.8"];

/** Returns the text of a body, whether or not the runtime has undone its coding. */
function readDecoded(answer: Answer): string {
  expect(answer.cut).toBe(false);
  const isEncoded = answer.get("content-encoding") === "gzip";
  return (isEncoded ? gunzipSync(answer.body) : answer.body).toString();
}

/** A body of a kilobyte that expands to 128 MiB. It is made once, because making it takes a while. */
let bomb: Buffer | undefined;

export const changes = {
  async "CVE-2026-22036: a small body that expands to 128 MiB, or has many codings, takes little memory"(
    t: Tools,
  ): Promise<void> {
    bomb ??= gzipSync(gzipSync(Buffer.alloc(128 * mebibyte)));
    const bodies: Record<string, [codings: string, body: Buffer]> = {
      "/first": ["gzip, gzip", gzipSync(gzipSync("text"))],
      "/many": [Array(3000).fill("gzip").join(), bomb],
      "/bomb": ["gzip, gzip", bomb],
    };
    t.upstream.script = (call) => {
      const [codings, body] = bodies[call.target] as [string, Buffer];
      const fields: Header[] = [
        ["Content-Type", "text/plain"],
        ["Content-Encoding", codings],
      ];
      call.reply(200, fields, body);
    };
    // Load the runtime's decoder with the first body, so that its memory does not count.
    expect((await t.ask(request("GET", "/first"), "changed")).status).toBe(200);
    const grown = await growth(t, async () => {
      for (const path of ["/many", "/bomb"]) {
        const answer = await t.ask(request("GET", path), "changed");
        // The proxy forwards a body that it cannot change, unless the runtime's `fetch` has refused or decoded the
        // body.
        if (answer.get("content-encoding") === undefined) continue;
        expect([answer.status, answer.body.equals(bomb as Buffer)], path).toEqual([200, true]);
      }
    });
    expect(grown).toBeLessThan(64 * mebibyte);
  },

  async "transformText changes an encoded body, and corrects the fields that describe it"(
    t: Tools,
  ): Promise<void> {
    const fields: Header[] = [
      ["Content-Type", "text/html"],
      ["Content-Encoding", "gzip"],
      ["ETag", '"strong"'],
      ["Accept-Ranges", "bytes"],
      ["Content-MD5", "Q2hlY2sgSW50ZWdyaXR5IQ=="],
      ["X-Kept", "1"],
    ];
    const body = gzipSync(text);
    t.upstream.script = (call) =>
      call.target === "/whole"
        ? call.reply(200, [...fields, ["Content-Length", String(body.length)]], body)
        : call.write(
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n",
            ...fields.map(([name, value]) => `${name}: ${value}\r\n`),
            "\r\n",
            chunk(body.subarray(0, 20)),
            chunk(body.subarray(20)),
            "0\r\n\r\n",
          );
    for (const path of ["/whole", "/chunked"]) {
      const asked = request("GET", path, [accept, ["Range", "bytes=0-5"]]);
      const answer = await t.ask(asked, "changed");
      const call = t.upstream.calls.at(-1);
      expect(call?.get("accept-encoding")).not.toContain("x-rot13");
      expect(call?.get("range")).toBeUndefined();
      expect(answer.status).toBe(200);
      expect(readDecoded(answer) === text.toUpperCase(), path).toBe(true);
      expect(answer.all("content-length")).toEqual([String(answer.body.length)]);
      expect(answer.get("etag")).toBe('W/"strong"');
      expect(answer.get("x-kept")).toBe("1");
      for (const name of ["content-encoding", "accept-ranges", "content-md5"]) {
        expect(answer.all(name), name).toEqual([]);
      }
    }
  },

  async "transformText does not change other media types, partial responses and responses without a body"(
    t: Tools,
  ): Promise<void> {
    const type: Header = ["Content-Type", "text/plain"];
    t.upstream.script = (call) => {
      if (call.target === "/image") return call.reply(200, [["Content-Type", "image/png"]], "abc");
      if (call.target === "/none") return call.reply("204 No Content", [type], null);
      if (call.target === "/same") return call.reply("304 Not Modified", [["ETag", '"a"']], null);
      const range: Header = ["Content-Range", "bytes 0-2/9"];
      return call.reply("206 Partial Content", [type, range, ["ETag", '"a"']], "abc");
    };
    expect(await t.ask(request("GET", "/image"), "changed")).toMatchObject({ text: "abc" });
    expect(await t.ask(request("GET", "/none"), "changed")).toMatchObject({ status: 204 });
    const asked = request("GET", "/same", [["If-None-Match", 'W/"a"']]);
    const same = await t.ask(asked, "changed");
    expect([same.status, same.get("etag")]).toEqual([304, 'W/"a"']);
    const part = await t.ask(request("GET", "/part"), "changed");
    expect(part).toMatchObject({ status: 206, text: "abc" });
    expect([part.get("etag"), part.get("content-range")]).toEqual(['"a"', "bytes 0-2/9"]);
  },

  async "transformText forwards a body that is too long or unreadable if `tooLarge` and `unreadable` are `pass`"(
    t: Tools,
  ): Promise<void> {
    t.upstream.script = (call) => {
      const fields: Header[] = [["Content-Type", "text/plain"]];
      if (call.target === "/coded")
        return call.reply(200, [...fields, ["Content-Encoding", "x-rot13"]], "nop");
      if (call.target === "/latin1")
        return call.reply(200, fields, Buffer.from("gr\xfc\xdfe", "latin1"));
      if (call.target === "/gzip")
        return call.reply(200, [...fields, ["Content-Encoding", "gzip"]], gzipSync(large));
      if (call.target === "/length") return call.reply(200, fields, large);
      return call.write(
        "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nTransfer-Encoding: chunked\r\n\r\n",
        ...(large.match(/[^]{1,9000}/g) ?? []).map((part) => chunk(part)),
        "0\r\n\r\n",
      );
    };
    const coded = await t.ask(request("GET", "/coded"), "changed");
    expect([coded.get("content-encoding"), coded.text]).toEqual(["x-rot13", "nop"]);
    const latin1 = await t.ask(request("GET", "/latin1"), "changed");
    expect(latin1.body.toString("latin1")).toBe("gr\xfc\xdfe");
    for (const path of ["/length", "/chunked"]) {
      expect(await t.ask(request("GET", path), "changed"), path).toMatchObject({
        text: large,
        cut: false,
      });
    }
    const gzip = await t.ask(request("GET", "/gzip", [accept]), "changed");
    expect(readDecoded(gzip) === large).toBe(true);
  },
};
