/** The app of the setup `inProcess`. Imported by hosts: no runtime's API here. */
import type { FetchTarget } from "#proxy";
import { gzip, lasting } from "./_lasting.ts";
import { pause } from "./_wait.ts";

/** The message of the app's exception: the operator may read it, no client may. */
const secret = "10.0.0.1 is the app's secret";

/** Bytes, one chunk after the other, until the last one, which may be an error. */
function createStream(chunks: (string | Error)[]): ReadableStream<Uint8Array> {
  const left = [...chunks];
  return new ReadableStream({
    async pull(controller) {
      const chunk = left.shift();
      if (chunk === undefined) return controller.close();
      if (typeof chunk === "string") return controller.enqueue(new TextEncoder().encode(chunk));
      // The head, and what came before, are at the client by then.
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
    // workerd's own: the bytes are encoded already.
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
