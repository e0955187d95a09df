/** Tests with an app in the host's own process as the target. The same rules hold as for other upstreams. */
import { gunzipSync } from "node:zlib";
import { expect } from "vitest";
import type { Answer } from "../helpers/client.ts";
import { digestOf, mebibyte, pour } from "../helpers/large.ts";
import type { Tools } from "./_suite.ts";
import { patience, pause } from "../helpers/wait.ts";
import { request, type Header } from "../helpers/wire.ts";

interface Seen {
  method: string;
  url: string;
  headers: Record<string, string>;
  body: string;
}

/** Repeats a request until its answer is this text. */
async function untilText(t: Tools, path: string, text: string): Promise<void> {
  // Use one connection: workerd keeps connections open for a while after their clients disconnect.
  const client = await t.connect("inProcess");
  for (const start = performance.now(); ; await pause(5)) {
    client.send(request("GET", path));
    if ((await client.read()).text === text) return;
    if (performance.now() - start > patience) throw new Error(`${path}: never ${text}`);
  }
}

const size = 16 * mebibyte;

async function upload(t: Tools, path: string, chunked: boolean): Promise<Answer> {
  const client = await t.connect("inProcess");
  const framing: Header = chunked
    ? ["Transfer-Encoding", "chunked"]
    : ["Content-Length", String(size)];
  client.send(request("POST", path, [framing]));
  const [answer] = await Promise.all([client.read("POST"), pour(client.socket, size, { chunked })]);
  return answer;
}

/**
 * Reads the next answer, and returns its status; undefined if the server closes the connection instead (RFC 9112 §9.3
 * allows that).
 */
function statusOf(client: Awaited<ReturnType<Tools["connect"]>>): Promise<number | undefined> {
  return client.read("POST").then(
    ({ status }) => status,
    (error: unknown) => {
      if (!String(error).includes("connection closed before a response head")) throw error;
      return undefined;
    },
  );
}

/** Sends a request, and disconnects during the exchange. */
async function leave(t: Tools, path: string): Promise<void> {
  const client = await t.connect("inProcess");
  client.send(request("GET", path));
  if (path === "/stream") await client.readHead();
  await untilText(t, "/aborted", "false");
  client.leave("RST");
  await untilText(t, "/aborted", "true");
}

export const apps = {
  async "an in-process app receives the target's authority and the client's path, header fields and body"(
    t: Tools,
  ): Promise<void> {
    const fields: Header[] = [
      ["X-Own", "1"],
      ["X-Real-IP", "6.6.6.6"],
      ["Connection", "x-hop"],
      ["X-Hop", "1"],
    ];
    const answer = await t.ask(request("POST", "/seen?c=+&d%2F", fields, "a body"), "inProcess");
    expect(answer.status).toBe(200);
    const { headers, ...seen } = JSON.parse(answer.text) as Seen;
    const url = "http://app.invalid/seen?c=+&d%2F";
    expect(seen).toEqual({ method: "POST", url, body: "a body" });
    expect(headers).toMatchObject({
      host: "app.invalid",
      "x-own": "1",
      "content-length": "6",
      "x-forwarded-host": "proxy.test",
    });
    expect(headers).not.toHaveProperty("x-real-ip");
    expect(headers).not.toHaveProperty("x-hop");
    expect(t.upstream.calls).toEqual([]);
  },

  async "a large request body streams to an in-process app"(t: Tools): Promise<void> {
    for (const chunked of [false, true]) {
      const answer = await upload(t, "/digest", chunked);
      expect([answer.status, answer.text]).toEqual([200, digestOf(size)]);
    }
  },

  async "a large body streams to an in-process app and back"(t: Tools): Promise<void> {
    for (const chunked of [false, true]) {
      const answer = await upload(t, "/back", chunked);
      expect([answer.status, answer.length, answer.sha256]).toEqual([200, size, digestOf(size)]);
    }
  },

  async "an in-process app's encoded body passes unchanged, with Content-Length, ETag and every cookie"(
    t: Tools,
  ): Promise<void> {
    const answer = await t.ask(request("GET", "/gzip", [["Accept-Encoding", "gzip"]]), "inProcess");
    expect(answer.get("content-encoding")).toBe("gzip");
    expect(answer.get("etag")).toBe('"strong"');
    expect(answer.all("set-cookie")).toEqual(["a=1; Path=/, x", "b=2"]);
    expect(gunzipSync(answer.body).length).toBe(2900);
    const head = await t.ask(request("HEAD", "/gzip"), "inProcess");
    expect([head.status, head.length]).toEqual([200, 0]);
    expect(head.get("etag")).toBe('"strong"');
    expect((await t.ask(request("GET", "/empty"), "inProcess")).status).toBe(204);
  },

  async "an in-process app's redirect to itself becomes a redirect to the proxy"(
    t: Tools,
  ): Promise<void> {
    const answer = await t.ask(request("GET", "/redirect"), "inProcess");
    expect([answer.status, answer.get("location")]).toEqual([302, "/seen?x"]);
  },

  async "an exception of an in-process app becomes a 502 that shows none of its text"(
    t: Tools,
  ): Promise<void> {
    for (const path of ["/throw", "/reject"]) {
      const answer = await t.ask(request("GET", path), "inProcess");
      expect(answer.status).toBe(502);
      expect(answer.text).toBe("Bad Gateway: connection_terminated\n");
      expect(answer.get("proxy-status")).toBe("fetchway; error=connection_terminated");
    }
  },

  async "an in-process app's body that fails or is too short breaks off for the client"(
    t: Tools,
  ): Promise<void> {
    for (const path of ["/broken", "/short"]) {
      const client = await t.connect("inProcess");
      client.send(request("GET", path));
      // If the body fails before the server has sent the head, the server closes the connection without a response.
      const isCut = await client.read().then(
        (answer) => answer.cut,
        (error: unknown) => String(error).includes("connection closed before a response head"),
      );
      expect([path, isCut]).toEqual([path, true]);
    }
  },

  async "the part of a request body that an in-process app does not read does not disturb the next request"(
    t: Tools,
  ): Promise<void> {
    /** Sends a request whose body the app does not read, and another one on the same connection. */
    const askTwice = async (path: string, chunked: boolean): Promise<void> => {
      const client = await t.connect("inProcess");
      const framing: Header = chunked
        ? ["Transfer-Encoding", "chunked"]
        : ["Content-Length", String(mebibyte)];
      client.send(request("POST", path, [framing]));
      const [first] = await Promise.all([
        statusOf(client),
        pour(client.socket, mebibyte, { chunked }),
      ]);
      const expected = { "/empty": 204, "/throw": 502 }[path] ?? 200;
      expect([path, chunked, first ?? expected]).toEqual([path, chunked, expected]);
      client.send(request("GET", "/seen"));
      expect([path, chunked, (await statusOf(client)) ?? 200]).toEqual([path, chunked, 200]);
    };
    // Run these together to save time: a server may leave a body unread until it closes the idle connection.
    const paths = ["/empty", "/aborted", "/throw", "/gzip"];
    await Promise.all(
      paths.flatMap((path) => [false, true].map((chunked) => askTwice(path, chunked))),
    );
  },

  async "a client that disconnects before the response aborts the in-process app's request"(
    t: Tools,
  ): Promise<void> {
    await leave(t, "/hang");
  },

  async "a client that disconnects during the response aborts the in-process app's request"(
    t: Tools,
  ): Promise<void> {
    await leave(t, "/stream");
  },
};
