/** The Worker that the proxy's Worker is bound to. Run by workerd, without Node's APIs. */
// @ts-expect-error: a module of workerd's own
import { DurableObject, WorkerEntrypoint } from "cloudflare:workers";
import { gzip, lasting } from "../_lasting.ts";
import { pause } from "../_wait.ts";

/** workerd's own: the bytes are encoded already. */
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
  /** Begins an encoded body, and then stalls. */
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
  /** A method that a target's option is named after: of a stub all are there. */
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
