import { toStream } from "../src/body.ts";
import type { ProxyErrorCode } from "../src/error.ts";
import { createFetchTransport } from "../src/fetch.ts";
import { getHeader, toHeaders } from "../src/headers.ts";
import { type Context, type Incoming, WebIncoming } from "../src/incoming.ts";
import { type PoolOptions, poolDefaults } from "../src/options.ts";
import {
  bindProxy,
  bindProxyFetch,
  createRoute,
  type CreateProxyOptions,
  type Proxy,
  type ProxyFetch,
  type Runtime,
} from "../src/proxy.ts";
import type { Upstream } from "../src/target.ts";
import type { Body, Capabilities, Hop, NativeBody, Transport } from "../src/transport.ts";

export * from "../src/index.ts";

/** What is used of Deno, so that no types package is needed. */
declare const Deno: {
  createHttpClient(options: object): HttpClient;
  env: {
    get(name: string): string | undefined;
    set(name: string, value: string): void;
    delete(name: string): void;
  };
  permissions: { querySync(descriptor: { name: "env"; variable: string }): { state: string } };
};

interface HttpClient {
  close(): void;
}

const CAPABILITIES: Capabilities = { decodes: [], host: true, unixSocket: true, tls: true };

/** Requests through Deno's `fetch`, with connections of the transport's own. */
export function createTransport(options: PoolOptions = {}): Transport {
  if (options.maxSockets !== undefined) {
    throw new TypeError(
      "fetchway: bad option `maxSockets`: Deno's client has no such limit; leave it out",
    );
  }
  const clients = new Map<string, HttpClient>();
  const clientOf = new WeakMap<Upstream, HttpClient>();

  function getClient(upstream: Upstream): HttpClient {
    let client = clientOf.get(upstream);
    if (client !== undefined) return client;
    const key = JSON.stringify([upstream.socketPath, upstream.tls]);
    client = clients.get(key) ?? createClient(upstream, options);
    clients.set(key, client);
    clientOf.set(upstream, client);
    return client;
  }

  return createFetchTransport({
    name: "deno",
    capabilities: CAPABILITIES,
    fetch: (url, init) => fetch(url, init),
    fields: toPairs,
    async prepare(init, hop) {
      (init as { client?: HttpClient }).client = getClient(hop.upstream);
      init.body = await toBodyInit(hop);
    },
    classify,
  });
}

function createClient({ socketPath, tls }: Upstream, options: PoolOptions): HttpClient {
  const { maxFreeSockets, freeSocketTimeout } = { ...poolDefaults, ...options };
  return withNoProxy(socketPath === undefined ? EVERYWHERE : "", () =>
    Deno.createHttpClient({
      allowHost: true,
      http2: false,
      poolMaxIdlePerHost: maxFreeSockets,
      poolIdleTimeout: freeSocketTimeout,
      ...(socketPath === undefined ? {} : { proxy: { transport: "unix", path: socketPath } }),
      ...(tls?.ca === undefined ? {} : { caCerts: [tls.ca].flat() }),
      ...(tls?.cert === undefined ? {} : { cert: tls.cert, key: tls.key }),
    }),
  );
}

const EVERYWHERE = "*,0.0.0.0/0,::/0";

/** Deno's clients obey HTTP_PROXY and NO_PROXY as they are when one is created; a reverse proxy goes to its target. */
function withNoProxy<T>(value: string, create: () => T): T {
  const { env, permissions } = Deno;
  if (permissions.querySync({ name: "env", variable: "NO_PROXY" }).state !== "granted")
    return create();
  const before = env.get("NO_PROXY");
  env.set("NO_PROXY", value);
  try {
    return create();
  } finally {
    if (before === undefined) env.delete("NO_PROXY");
    else env.set("NO_PROXY", before);
  }
}

/** Fields in pairs: Deno writes a line for each, where `Headers` would join them. */
function toPairs({ headers, host }: Hop): [string, string][] {
  // Only with this very line first are responses not decoded; what the client accepts is a line of its own.
  const pairs: [string, string][] = [["accept-encoding", "identity"]];
  for (let i = 0; i < headers.length; i += 2)
    pairs.push([headers[i] as string, headers[i + 1] as string]);
  if (host !== undefined) pairs.push(["host", host]);
  // Empty is the least that can be said.
  if (getHeader(headers, "user-agent") === undefined) pairs.push(["user-agent", ""]);
  return pairs;
}

/** Methods that may be sent twice (RFC 9110 §9.2.2): Deno does so with what it holds in memory. */
const IDEMPOTENT =
  /^(?:GET|HEAD|OPTIONS|PUT|DELETE|PROPFIND|REPORT|SEARCH|QUERY|MKCOL|COPY|MOVE|LINK|UNLINK)$/;

async function toBodyInit({ method, body, contentLength }: Hop): Promise<BodyInit | null> {
  if (method === "GET" || method === "HEAD") return null;
  let content: Body | null = body;
  if (content instanceof UnframedBody) content = await content.unlessEmpty();
  if (IDEMPOTENT.test(method)) {
    return content === null || content instanceof Uint8Array
      ? (content as BodyInit | null)
      : toStream(content);
  }
  if (content === null) return toStream(new Uint8Array());
  if (content instanceof Uint8Array) return new SizedStream(toStream(content), content.byteLength);
  return contentLength === undefined
    ? toStream(content)
    : new SizedStream(toStream(content), contentLength);
}

/** A stream of known length. Deno sends a stream in chunks, but a blob with its size, and no blob twice. */
class SizedStream extends Blob {
  readonly #stream: ReadableStream<Uint8Array>;
  readonly #size: number;

  constructor(stream: ReadableStream<Uint8Array>, size: number) {
    super();
    this.#stream = stream;
    this.#size = size;
  }

  override get size(): number {
    return this.#size;
  }

  override stream(): ReturnType<Blob["stream"]> {
    return this.#stream as ReturnType<Blob["stream"]>;
  }
}

/** A body without Content-Length or Transfer-Encoding: none in HTTP/1, perhaps one in HTTP/2. */
class UnframedBody implements NativeBody {
  readonly #stream: ReadableStream<Uint8Array>;

  constructor(stream: ReadableStream<Uint8Array>) {
    this.#stream = stream;
  }

  stream(): ReadableStream<Uint8Array> {
    return this.#stream;
  }

  async unlessEmpty(): Promise<Body | null> {
    const reader = this.#stream.getReader();
    let next = await reader.read();
    if (next.done) return null;
    return new ReadableStream({
      async pull(controller) {
        if (next.done) return controller.close();
        controller.enqueue(next.value);
        next = await reader.read();
      },
      cancel: (reason) => reader.cancel(reason),
    });
  }
}

function isFramed(headers: string[]): boolean {
  return (
    getHeader(headers, "content-length") !== undefined ||
    getHeader(headers, "transfer-encoding") !== undefined
  );
}

/** What `Deno.serve` passes beside the request. */
interface ServeInfo {
  remoteAddr?: { hostname?: string };
}

function read(request: Request, context: Context): Incoming {
  const address = (context as ServeInfo | undefined)?.remoteAddr?.hostname;
  const incoming = new WebIncoming(request, address?.replace(/^::ffff:(?=[\d.]+$)/, ""));
  if (incoming.body instanceof ReadableStream && !isFramed(incoming.headers)) {
    incoming.body = new UnframedBody(incoming.body);
  }
  return incoming;
}

function classify(thrown: unknown): ProxyErrorCode | undefined {
  return undefined;
}

const runtime: Runtime = {
  read,
  createTransport,
  respond: ({ status, statusText, headers, body }) =>
    new Response(body && toStream(body), { status, statusText, headers: toHeaders(headers) }),
};

/**
 * Forwards a request to a target and resolves to the response to return.
 * @example Deno.serve((request) => proxyFetch(request, "https://api.example"));
 */
export const proxyFetch: ProxyFetch = bindProxyFetch(runtime);

/**
 * A proxy with its options compiled once and connections of its own.
 * @throws TypeError that names a bad option and the fix
 * @example export default createProxy({ target: "https://api.example" });
 */
export function createProxy(options: CreateProxyOptions): Proxy {
  return bindProxy(createRoute(options, runtime), runtime);
}
