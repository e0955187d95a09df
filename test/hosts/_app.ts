/**
 * The app that is the target in the setup `inProcess`. Hosts on every runtime import this file, so it uses only web
 * APIs.
 */
import type { FetchTarget } from "#fetchway";
import { gzip, lasting } from "../helpers/lasting.ts";
import { pause } from "../helpers/wait.ts";

/** The message of the app's exception. The operator may read it, but it must not reach a client. */
const secret = "10.0.0.1 is the app's secret";

/** Creates a stream of these chunks. An error in place of the last chunk makes the stream fail there. */
function createStream(chunks: (string | Error)[]): ReadableStream<Uint8Array> {
  const left = [...chunks];
  return new ReadableStream({
    async pull(controller) {
      const chunk = left.shift();
      if (chunk === undefined) return controller.close();
      if (typeof chunk === "string") return controller.enqueue(new TextEncoder().encode(chunk));
      // Pause, so that the client receives the head and the chunks before the error.
      await pause(50);
      throw chunk;
    },
  });
}

const ways: Record<string, (request: Request) => Response | Promise<Response>> = {
  async "/seen"(request) {
    const { method, url, headers } = request;
    const body = await request.text();
    return Response.json({ method, url, headers: Object.fromEntries(headers), body });
  },
  "/back": ({ body }) => new Response(body, { headers: { "content-type": "a/b" } }),
  async "/digest"(request) {
    const digest = await crypto.subtle.digest("SHA-256", await request.arrayBuffer());
    const bytes = Array.from(new Uint8Array(digest), (byte) => byte.toString(16).padStart(2, "0"));
    return new Response(bytes.join(""));
  },
  async "/gzip"() {
    const bytes = await gzip("a body that compresses well; ".repeat(100));
    const headers = new Headers([
      ["content-type", "text/plain"],
      ["content-encoding", "gzip"],
      ["content-length", String(bytes.byteLength)],
      ["etag", '"strong"'],
      ["set-cookie", "a=1; Path=/, x"],
      ["set-cookie", "b=2"],
    ]);
    // Only workerd reads `encodeBody`: "manual" means that the bytes are already encoded.
    const init: ResponseInit & { encodeBody: "manual" } = { headers, encodeBody: "manual" };
    return new Response(bytes, init);
  },
  "/redirect": ({ url }) => Response.redirect(new URL("/seen?x", url), 302),
  "/throw"() {
    throw new TypeError(secret);
  },
  "/reject": () => Promise.reject(new Error(secret)),
  "/broken": () => new Response(createStream(["half", new Error(secret)])),
  "/short": () =>
    new Response(createStream(["half"]), {
      headers: { "content-type": "a/b", "content-length": "8" },
    }),
  "/empty": () => new Response(null, { status: 204 }),
  ...lasting,
};

export const app: FetchTarget = {
  fetch(request) {
    const way = ways[new URL(request.url).pathname];
    return way === undefined ? new Response(null, { status: 404 }) : way(request);
  },
};
