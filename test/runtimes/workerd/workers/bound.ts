/** The Worker to which the proxy's Worker is bound. It runs in workerd, without Node's APIs. */
// @ts-expect-error: only workerd has this module
import { DurableObject, WorkerEntrypoint } from "cloudflare:workers";
import { gzip, lasting } from "../../../helpers/lasting.ts";
import { pause } from "../../../helpers/wait.ts";

/** An init that only workerd supports: `encodeBody: "manual"` means that the bytes are already encoded. */
type Manual = ResponseInit & { encodeBody: "manual" };

const ways: Record<string, (request: Request) => Response | Promise<Response>> = {
  async "/echo"(request) {
    const { method, url, headers } = request;
    const body = await request.text();
    return Response.json({ method, url, fields: Object.fromEntries(headers), body });
  },
  "/back": ({ body, headers }) =>
    new Response(body, { headers: { "x-length": headers.get("content-length") ?? "none" } }),
  async "/gzip"() {
    const bytes = await gzip("a body that compresses well; ".repeat(100));
    const headers = {
      "content-encoding": "gzip",
      "content-length": String(bytes.byteLength),
      etag: '"strong"',
    };
    return new Response(bytes, { headers, encodeBody: "manual" } as Manual);
  },
  /** Sends the beginning of an encoded body, and then nothing more. */
  async "/stalled"() {
    const bytes = new Uint8Array(await gzip("a body that compresses well; ".repeat(100)));
    const body = new ReadableStream({
      async pull(controller) {
        controller.enqueue(bytes.subarray(0, 20));
        await pause(60_000);
      },
    });
    return new Response(body, {
      headers: { "content-encoding": "gzip" },
      encodeBody: "manual",
    } as Manual);
  },
  "/to-encode": () =>
    new Response("a body that compresses well; ".repeat(100), {
      headers: { "content-encoding": "gzip" },
    }),
  "/cookies": () =>
    new Response("odd", {
      status: 299,
      statusText: "Odd One",
      headers: [
        ["set-cookie", "a=1; Path=/, x"],
        ["set-cookie", "b=2"],
      ],
    }),
  "/redirect": ({ url }) => Response.redirect(new URL("/echo?followed", url), 302),
  "/throw"() {
    throw new TypeError("Cannot read properties of undefined (reading 'secret')");
  },
  ...lasting,
};

export function answer(request: Request): Response | Promise<Response> {
  const way = ways[new URL(request.url).pathname.replace(/^\/base/, "")];
  return way === undefined ? new Response("none here", { status: 404 }) : way(request);
}

export class Room extends DurableObject {
  fetch(request: Request): Response | Promise<Response> {
    return answer(request);
  }
  /**
   * A method whose name is also that of a property of targets. A stub has every method, so the proxy must not take a
   * stub's `url` for that property.
   */
  url(): string {
    return "no URL";
  }
}

export class Callable extends WorkerEntrypoint {
  fetch(request: Request): Response | Promise<Response> {
    return answer(request);
  }
}

const worker: { fetch: typeof answer } = { fetch: answer };
export default worker;
