/** Fakes of a client, a transport and an upstream's responses, so that unit tests open no connections. */
import { expect, vi } from "vitest";
import { BytesBody } from "../../src/body/bytes.ts";
import type { BodySource } from "../../src/body/source.ts";
import { StreamBody } from "../../src/body/stream.ts";
import { Scope, type Listener } from "../../src/transport/scope.ts";
import { ProxyError, type ProxyErrorCode } from "../../src/error.ts";
import {
  createFetchTransport,
  type FetchClient,
  type FetchLike,
  STANDARD,
} from "../../src/fetch/fetchtransport.ts";
import type { Respond } from "../../src/pipeline/exchange.ts";
import { forward } from "../../src/pipeline/pipeline.ts";
import { toHeaders } from "../../src/fields/headers.ts";
import type { Incoming } from "../../src/request/incoming.ts";
import type { ProxyOptions } from "../../src/options/proxyoptions.ts";
import { compile } from "../../src/plan.ts";
import { parseTarget } from "../../src/target/target.ts";
import type { Target } from "../../src/upstreams/upstreams.ts";
import type { Capabilities, Transport } from "../../src/transport/port.ts";
import type { UpstreamRequest, UpstreamResponse } from "../../src/transport/message.ts";

export const TARGET = "http://up.test:4000";

export const CAPABLE: Capabilities = { decodes: [], host: true, unixSocket: true, tls: true };

/** A client that is connected until `leave()` is called, and keeps a set of its listeners. */
export class FakeClient {
  readonly listeners: Set<Listener> = new Set();
  listenAfter?: number;
  clientAddress?: string | undefined;

  listen(listener: Listener): void {
    this.listeners.add(listener);
  }

  unlisten(listener: Listener): void {
    this.listeners.delete(listener);
  }

  leave(): void {
    for (const listener of this.listeners) listener.handleEvent();
  }
}

/** Creates a scope without deadlines. */
export function fakeScope(): Scope {
  return new Scope(new FakeClient(), 0, 0);
}

/** Creates a scope with deadlines, and returns it with its client and with `fail`, which the scope calls when it is aborted. */
export function startScope(
  timeout = 1_000,
  idleTimeout = 500,
  signal?: AbortSignal,
): { client: FakeClient; scope: Scope; fail: ReturnType<typeof vi.fn> } {
  const client = new FakeClient();
  const scope = new Scope(client, timeout, idleTimeout, signal);
  const fail = vi.fn();
  scope.onAbort({ fail });
  return { client, scope, fail };
}

export type FakeIncoming = Incoming & FakeClient;

/** A message whose members are optional, and whose body may be bytes, a stream or a `BodySource`. */
export type Given<T extends { body: BodySource | null }> = Partial<Omit<T, "body">> & {
  body?: BodySource | Uint8Array | ReadableStream<Uint8Array> | null;
};

export function toBody(body: Given<UpstreamResponse>["body"] = null): BodySource | null {
  if (body instanceof Uint8Array) return new BytesBody(body);
  return body instanceof ReadableStream ? new StreamBody(body) : body;
}

export function fakeIncoming(over: Given<Incoming> = {}): FakeIncoming {
  const { method = "GET", path = "/" } = over;
  return Object.assign(new FakeClient(), {
    method,
    path,
    authority: "proxy.test",
    secure: false,
    headers: ["Host", "proxy.test"],
    address: "192.0.2.7",
    version: () => "1.1",
    request: () => new Request(`http://proxy.test${path}`, { method }),
    ...over,
    body: toBody(over.body),
  });
}

export function fakeRequest(over: Given<UpstreamRequest> = {}): UpstreamRequest {
  return {
    upstream: parseTarget(TARGET),
    method: "GET",
    path: "/",
    headers: [],
    host: undefined,
    contentLength: undefined,
    ...over,
    body: toBody(over.body),
  };
}

export function fakeResponse(over: Given<UpstreamResponse> = {}): UpstreamResponse {
  return { status: 200, statusText: "OK", headers: [], ...over, body: toBody(over.body) };
}

/** A transport in memory. It records the requests, and returns the responses that the test sets. */
export class FakeTransport implements Transport {
  readonly name = "fake";
  capabilities: Capabilities = CAPABLE;
  readonly hops: UpstreamRequest[] = [];
  readonly scopes: Scope[] = [];
  closed = 0;
  answer: (hop: UpstreamRequest, scope: Scope) => UpstreamResponse | Promise<UpstreamResponse>;

  constructor(answer: FakeTransport["answer"] = () => fakeResponse()) {
    this.answer = answer;
  }

  async send(hop: UpstreamRequest, scope: Scope): Promise<UpstreamResponse> {
    this.hops.push(hop);
    this.scopes.push(scope);
    return this.answer(hop, scope);
  }

  async close(): Promise<void> {
    this.closed++;
  }
}

/** Sends an upstream request through a fetch transport that calls this `fetch`. */
export function sendBy(
  fetch: FetchLike,
  hop: Given<UpstreamRequest> = {},
  scope: Scope = fakeScope(),
  client: Partial<FetchClient> = {},
): Promise<UpstreamResponse> {
  const transport = createFetchTransport({
    name: "test",
    capabilities: STANDARD,
    fetch,
    ...client,
  });
  return transport.send(fakeRequest(hop), scope);
}

export function streamed({ body }: UpstreamResponse): ReadableStream<Uint8Array> {
  return (body ?? new BytesBody(bytes(""))).stream();
}

export const textOf = (reply: UpstreamResponse): Promise<string> =>
  new Response(streamed(reply)).text();

/** Forwards a request through the whole pipeline, with a transport in memory. */
export function run(
  incoming: Given<Incoming>,
  setup: { options?: ProxyOptions; target?: Target; transport?: Transport; context?: unknown } = {},
): Promise<Response> {
  const { options = {}, target = TARGET, transport = new FakeTransport(), context } = setup;
  const plan = compile(options, () => transport);
  return forward(fakeIncoming(incoming), target, plan, context, respond);
}

/** Converts an upstream response to a web Response. */
export const respond: Respond = ({ status, statusText, headers, body }) =>
  new Response(body?.stream() ?? null, { status, statusText, headers: toHeaders(headers) });

export const bytes = (text: string): Uint8Array<ArrayBuffer> => new TextEncoder().encode(text);

/** Creates a stream that delivers one chunk per pull, and calls `cancelled` when it is cancelled. */
export function streamOf(
  pieces: string[],
  cancelled?: (reason: unknown) => void,
): ReadableStream<Uint8Array> {
  const left = [...pieces];
  return new ReadableStream<Uint8Array>(
    {
      pull(controller) {
        const piece = left.shift();
        if (piece === undefined) controller.close();
        else controller.enqueue(bytes(piece));
      },
      cancel: (reason) => cancelled?.(reason),
    },
    { highWaterMark: 0 },
  );
}

/** Returns a matcher for a `ProxyError` with this code and status. */
export function proxyError(code: ProxyErrorCode, status: number): ProxyError {
  return expect.objectContaining({ name: "ProxyError", code, status }) as ProxyError;
}

/** Returns the error that a function throws, or with which its promise rejects. */
export async function errorOf(body: () => unknown): Promise<unknown> {
  try {
    await body();
  } catch (error) {
    return error;
  }
  throw new Error("nothing was thrown");
}

/** The response to a request, or the error with which sending it fails. */
export type Answer = Given<UpstreamResponse> | Error;

/**
 * Creates a transport that gives these answers in turn, and then empty 200s. It reads the request's body before each answer.
 */
export function answering(...answers: Answer[]): FakeTransport & { bodies: (string | null)[] } {
  const bodies: (string | null)[] = [];
  const transport = new FakeTransport(async ({ body }) => {
    bodies.push(body && (await new Response(body.stream()).text()));
    const answer = answers.shift() ?? {};
    if (answer instanceof Error) throw answer;
    return fakeResponse(answer);
  });
  return Object.assign(transport, { bodies });
}

/** The error of a request that was sent on a kept connection which the upstream had already closed. */
export const stale: ProxyError = new ProxyError("connection_terminated", { stale: true });

/** Creates a redirect response to this location. */
export const to = (location: string, status = 302): Partial<UpstreamResponse> => ({
  status,
  headers: ["Location", location],
});
