/** Helpers of the in-process cases. Programs of every runtime import this file, so it uses only web APIs. */
import { H3 } from "h3";
import { Hono } from "hono";
import type { CreateProxyOptions, FetchTarget, Proxy } from "../../../src/index.ts";

export type Create = (options: CreateProxyOptions) => Proxy;
export type Case = (createProxy: Create) => Promise<void>;

export function assert(condition: boolean, what: string): asserts condition {
  if (!condition) throw new Error(what);
}

export function assertEqual(seen: unknown, expected: unknown): void {
  const [a, b] = [JSON.stringify(seen), JSON.stringify(expected)];
  assert(a === b, `${a}, not ${b}`);
}

export function read(path: string, init: RequestInit & { duplex?: "half" } = {}): Request {
  return new Request(`http://proxy.test${path}`, init);
}

export async function until(condition: () => boolean, what: string): Promise<void> {
  for (const start = Date.now(); !condition();) {
    assert(Date.now() - start < 8000, `${what}: not within 8 s`);
    await new Promise((resolve) => setTimeout(resolve, 2));
  }
}

export async function describeRequest(request: Request): Promise<Response> {
  const { method, url, headers } = request;
  const body = await request.text();
  return Response.json({ method, url, headers: Object.fromEntries(headers), body });
}

export const h3: FetchTarget = new H3().all("/**", (event) => describeRequest(event.req));
export const hono: FetchTarget = new Hono().all("*", (c) => describeRequest(c.req.raw));
export const frameworks: Record<string, FetchTarget> = { h3, hono };

export interface Seen {
  method: string;
  url: string;
  headers: Record<string, string>;
  body: string;
}

export async function ask(proxy: Proxy, request: Request): Promise<Seen> {
  const response = await proxy.fetch(request);
  assertEqual(response.status, 200);
  return (await response.json()) as Seen;
}

/** Returns the response's status, and checks that its body shows no secret, no stack trace and not the app's host. */
export async function statusOf(proxy: Proxy, request: Request = read("/")): Promise<number> {
  const response = await proxy.fetch(request);
  const text = await response.text();
  assert(!/secret|at .*:\d+|invalid/.test(text), `it leaks: ${text}`);
  return response.status;
}

export const mebibyte: number = 1024 * 1024;
export const LENGTH: number = 8 * mebibyte;

/** Creates a stream of bytes that differ from chunk to chunk, and counts the bytes that were read from it. */
export function createSource(length: number = LENGTH): {
  stream: ReadableStream<Uint8Array>;
  taken: number;
} {
  const source = { stream: new ReadableStream<Uint8Array>(), taken: 0 };
  source.stream = new ReadableStream<Uint8Array>(
    {
      pull(controller) {
        if (source.taken === length) return controller.close();
        const chunk = new Uint8Array(64 * 1024).fill((source.taken / 65536) % 251);
        source.taken += chunk.byteLength;
        controller.enqueue(chunk);
      },
    },
    { highWaterMark: 0 },
  );
  return source;
}

/** Counts the received bytes, and checks some bytes of each chunk. */
export async function countBytes(body: ReadableStream<Uint8Array> | null): Promise<number> {
  let length = 0;
  const reader = (body as ReadableStream<Uint8Array>).getReader();
  for (let next = await reader.read(); !next.done; next = await reader.read()) {
    for (let i = 0; i < next.value.length; i += 4093) {
      assertEqual(next.value[i], Math.floor((length + i) / 65536) % 251);
    }
    length += next.value.length;
  }
  return length;
}

/** Creates an app that returns the result of `answer`. */
export const answering = (answer: () => unknown): FetchTarget => ({
  fetch: async () => (await answer()) as Response,
});

/** Creates a `fetch` that replaces the network and records its requests. */
export function createNetwork(): {
  fetch: NonNullable<CreateProxyOptions["fetch"]>;
  sent: [string, Headers][];
} {
  const sent: [string, Headers][] = [];
  return {
    sent,
    fetch(url, { headers }) {
      sent.push([url, headers as Headers]);
      return new Response("from the network");
    },
  };
}

export async function gzip(text: string): Promise<Uint8Array<ArrayBuffer>> {
  const zipped = new Blob([text]).stream().pipeThrough(new CompressionStream("gzip"));
  return new Uint8Array(await new Response(zipped).arrayBuffer());
}

export const never = (): Promise<never> => new Promise<never>(() => {});

export function assertMisuse(body: () => unknown, message: RegExp): void {
  let thrown: unknown;
  try {
    body();
  } catch (error) {
    thrown = error;
  }
  assert(thrown instanceof TypeError && message.test(thrown.message), `it threw ${String(thrown)}`);
}

/** Waits until the value of `count` has not changed for 200 ms, and returns it. */
export async function settle(count: () => number): Promise<number> {
  let last = -1;
  let since = Date.now();
  await until(() => {
    if (count() !== last) [last, since] = [count(), Date.now()];
    return Date.now() - since > 200;
  }, "rest");
  return last;
}
