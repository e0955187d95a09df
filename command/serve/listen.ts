import type { IncomingMessage, ServerResponse } from "node:http";
import type { Http2ServerRequest } from "node:http2";
import type { AddressInfo, Server as NetServer } from "node:net";
import { type Proxy, ProxyError } from "#fetchway";
import { quoteInput, defaultsOf } from "#fetchway/options";
import { createTrust } from "#fetchway/requests";
import type { Server, ServerHandler, ServerRequest } from "srvx";
import { clientLimitSchema } from "../flags/commandoptions.ts";
import { UsageError } from "../flags/read.ts";
import { ClientConnections, type Limit } from "../limits/clientconnections.ts";
import {
  type ClientLimitSettings,
  countListeners,
  isTooLarge,
  lacksHost,
  setNodeLimits,
  nodeLimits,
  PROBES,
  type ResolvedClientLimits,
  shareLimits,
} from "../limits/clientlimits.ts";
import { ClientWatch } from "../limits/clienttimeouts.ts";
import { answerRefusals, refuseEarly, type Report } from "../limits/ownanswers.ts";
import { expectHeaders } from "../limits/proxyheader.ts";
import { printWarning } from "../log/ownmessages.ts";
import type { CertificateTexts } from "./certificate.ts";
import { Overload } from "../limits/overload.ts";
import {
  BACKLOG,
  canSharePort,
  claimPort,
  closeListeners,
  listenAlso,
  reopenListeners,
} from "./listeners.ts";
import { nearHost, openOn, suggestHosts } from "./loopback.ts";
import { toMutable } from "./mutableresponse.ts";
import { endPollingFor } from "./pollend.ts";
import { loadServe } from "./permission.ts";
import { acceptHttp2 } from "./priorknowledge.ts";
import { createRedirect } from "./redirecthttp.ts";
import {
  claimSocket,
  explainSocketRefusal,
  readSocketPath,
  removeSocket,
  setSocketMode,
  toSocketOptions,
} from "./socketfile.ts";

/** Where and how a server listens. */
export interface ListenSettings {
  /** The port; 0 for a free one. */
  readonly port: number;
  /** An address, a host name, or `unix:/path`. */
  readonly host: string;
  /** The permissions of the socket's file, in octal digits; if undefined, the umask decides. */
  readonly socketMode?: string | undefined;
  /** The certificate; undefined for a server without TLS. */
  readonly certificate?: CertificateTexts | undefined;
  /** The port of a second listener, which redirects to HTTPS. */
  readonly redirectHttp?: number | undefined;
  readonly limits?: ClientLimitSettings;
  /** The addresses and ranges of the peers whose connections begin with a header of the PROXY protocol. */
  readonly proxyProtocol?: readonly string[] | undefined;
  /** Returns whether an address is exempt from `maxPerAddress`. */
  readonly isExempt?: ((address: string) => boolean) | undefined;
  /** The handlers of WebSockets for Bun's server. The servers of other runtimes need none. */
  readonly websocket?: unknown;
  /** Receives the requests that no proxy sees, because the server answers them itself. */
  readonly report?: Report;
  /** Facts about the workers; undefined in a process that is no worker. */
  readonly worker?: WorkerPart | undefined;
}

/** What the server of a worker needs to know about all workers. */
export interface WorkerPart {
  /** The number of workers: each gets its share of the limits for connections. */
  readonly count: number;
}

/** The requests and tunnels that a server carries. */
export interface Running {
  readonly requests: number;
  /** Connections and HTTP/2 streams that carry another protocol, such as WebSockets. */
  readonly tunnels: number;
}

/** A listening server, and the connections of its clients. */
export interface Front {
  readonly server: Server;
  /** The origin on which the server listens, or `unix:/path`. */
  readonly address: string;
  /** The origin of the listener that redirects to HTTPS; undefined if there is none. */
  readonly redirect: string | undefined;
  /** The connections of clients; undefined on Bun and Deno, whose servers do not show them. */
  readonly connections: ClientConnections | undefined;
  readonly slow: ClientWatch | undefined;
  /** Counts the running requests and tunnels. */
  countRunning(proxy: Pick<Proxy, "stats">): Running;
  /** Stops accepting connections, and asks clients to send no further requests on open ones. */
  stopAccepting(): Promise<void>;
  /**
   * Counts a request that asks for an upgrade, unless it exceeds a limit. May be called more than once for a request, and for
   * requests that ask for no upgrade.
   * @returns false if the request must not be upgraded; over HTTP/2, it has then been answered
   */
  readonly admitUpgrade: (message: IncomingMessage | Http2ServerRequest) => boolean;
  /**
   * Closes idle connections, and returns whether all requests, tunnels and connections have ended. Call it repeatedly while
   * the server stops.
   * @param grace milliseconds for which idle connections are kept
   */
  isFinished(proxy: Pick<Proxy, "stats">, grace: number): boolean;
}

/**
 * Starts a server.
 * @throws UsageError if the server cannot listen on that port, host or socket
 */
export async function listen(answer: ServerHandler, settings: ListenSettings): Promise<Front> {
  const { port, host } = settings;
  const serve = await loadServe();
  try {
    return await openOn(host, (chosen) => openFront(answer, { ...settings, host: chosen }, serve));
  } catch (error) {
    if (error instanceof UsageError) throw error;
    const socketPath = readSocketPath(host);
    throw socketPath === undefined
      ? explainRefusal(error, "--port", port, host)
      : explainSocketRefusal(error, socketPath);
  }
}

async function openFront(
  answer: ServerHandler,
  settings: ListenSettings,
  serve: Awaited<ReturnType<typeof loadServe>>,
): Promise<Front> {
  const { port, host, certificate, redirectHttp, websocket, worker, report = () => {} } = settings;
  const socketPath = readSocketPath(host);
  const socket = socketPath === undefined ? undefined : toSocketOptions(socketPath);
  const limits = shareLimits(settings.limits ?? defaultsOf(clientLimitSchema), worker?.count);
  if (socketPath !== undefined && certificate !== undefined) {
    throw new UsageError(
      "a socket has clients of this machine only: leave the certificate out, or use a port",
    );
  }
  let isStopping = false;
  let isClosed = false;
  /** The number of running requests on Deno, whose server does not count them. */
  let pending = 0;

  /** Returns the response that refuses a request beyond the limits or without Host; undefined for any other request. */
  const refuse = (message: IncomingMessage | Http2ServerRequest): Response | undefined => {
    if (isTooLarge(message, limits)) {
      return refuseEarly(message, 431, "the header section is too large", report);
    }
    if (lacksHost(message)) return refuseEarly(message, 400, "the request has no Host", report);
    return refuseBeyond(connections?.limitBeyond(message), message);
  };
  const refuseBeyond = (
    limit: Limit | undefined,
    message: IncomingMessage | Http2ServerRequest,
  ): Response | undefined => {
    if (limit === undefined) return undefined;
    const response = refuseEarly(message, 503, CAUSES[limit], report);
    response.headers.set("retry-after", "1");
    return response;
  };
  /** On Node, applies `refuse` to each request. On Bun and Deno, a request has no `runtime.node`, and passes. */
  const guard =
    (inner: ServerHandler): ServerHandler =>
    (request) => {
      const message = request.runtime?.node?.req;
      return (message && refuse(message)) ?? inner(request);
    };
  const answerElsewhere: ServerHandler = (request) => {
    const deno = request.runtime?.deno;
    // Deno takes the scheme from the request target, so a client on a plain connection could claim `https` in
    // `X-Forwarded-Proto`. Such a request is misdirected (RFC 9110 §7.4).
    if (deno !== undefined && request.url.startsWith("https:") !== (certificate !== undefined)) {
      return new Response("421 Misdirected Request\n", { status: 421 });
    }
    const completed = deno?.info?.completed;
    if (completed !== undefined) {
      pending++;
      const count = (): void => void pending--;
      completed.then(count, count);
    }
    return isStopping ? answerLast(request) : answer(request);
  };
  const trusts = settings.proxyProtocol && createTrust(settings.proxyProtocol);
  // A peer that sends headers of the PROXY protocol is a load balancer, so `--max-per-address` does not apply to its address.
  const isExempt = (address: string): boolean =>
    trusts?.(address) === true || settings.isExempt?.(address) === true;
  const limitClients = (node: NetServer, takes?: ReturnType<typeof acceptHttp2>): void => {
    const { headersTimeout } = limits;
    setNodeLimits(node, limits);
    answerRefusals(node, headersTimeout, report, takes);
    if (trusts === undefined) return;
    expectHeaders(node, {
      trusts,
      headersTimeout,
      report,
      nameClient: (raw, address) => connections?.nameClient(raw, address),
    });
  };
  async function answerLast(request: ServerRequest): Promise<Response> {
    const answered = await answer(request);
    if (answered.status === 101) return answered;
    const response = toMutable(answered);
    response.headers.set("connection", "close");
    return response;
  }

  // Only the command's own server on Node opens several listening sockets. A worker does not, because its parent
  // owns the listening socket; the demo upstream does not, because it has few clients.
  const isShared =
    isOnNode &&
    canSharePort &&
    socketPath === undefined &&
    worker === undefined &&
    settings.limits !== undefined;
  let server: Server;
  let redirect: Server | undefined;
  let connections: ClientConnections | undefined;
  let endPolling: (() => void) | undefined;
  let releaseClaim: (() => void) | undefined;
  try {
    // Port 0 needs no claim: the system chooses a port on which no other process listens.
    if (isShared && port !== 0) releaseClaim = await claimPort(port, host);
    if (socketPath !== undefined && worker === undefined) {
      releaseClaim = await claimSocket(socketPath);
    }
    const shared = toServerOptions(host, limits, worker);
    server = serve({
      ...shared,
      fetch: isOnNode ? guard(answer) : answerElsewhere,
      port,
      // Pass the certificate to Node directly: srvx treats a PEM text that does not begin with `-----BEGIN` as a path.
      node: {
        ...shared.node,
        ...certificate,
        ...(isShared && { reusePort: true }),
        ...socket?.node,
      },
      bun: {
        ...shared.bun,
        ...(certificate && { tls: certificate }),
        ...(websocket !== undefined && { websocket: websocket as never }),
        ...socket?.bun,
      },
      deno: { ...shared.deno, ...certificate, ...socket?.deno },
    });
    const node = server.node?.server as NetServer | undefined;
    if (node !== undefined) {
      const reportFull = (reason: string): void => reportRefusal(reason, worker?.count);
      limitClients(node, certificate === undefined ? acceptHttp2(node, shared.node) : undefined);
      connections = new ClientConnections(node, limits, reportFull, isExempt);
    }
    await server.ready();
    if (socketPath !== undefined) setSocketMode(socketPath, settings.socketMode);
    if (isShared && node !== undefined) {
      // The further sockets must set up connections as the server's own socket does.
      const options = { ...PROBES, allowHalfOpen: certificate === undefined, noDelay: true };
      const more = await listenAlso(node, host, countListeners(), options);
      connections?.listeners.push(...more);
      endPolling = endPollingFor(node);
      if (connections !== undefined && settings.limits?.maxConnections === "auto") {
        connections.overload = watchOverload(connections, node, more);
      }
    }
    if (redirectHttp !== undefined) {
      const answerPlain = createRedirect(new URL(server.url ?? "").port, report);
      redirect = serve({ ...shared, fetch: guard(answerPlain), port: redirectHttp });
      const plain = redirect.node?.server as NetServer | undefined;
      if (plain !== undefined) {
        limitClients(plain);
        connections?.watch(plain);
        refuseContinue(plain);
      }
      await redirect.ready().catch((error: unknown) => {
        throw explainRefusal(error, "--redirect-http", redirectHttp, host);
      });
    }
  } finally {
    releaseClaim?.();
  }

  const front: Front = {
    server,
    address: socketPath === undefined ? new URL(server.url ?? "").origin : host,
    redirect: redirect?.url && new URL(redirect.url).origin,
    connections,
    slow: connections && new ClientWatch(connections, limits),
    countRunning(proxy) {
      if (connections !== undefined) {
        return { requests: connections.running.size, tunnels: connections.tunnels };
      }
      const requests = server.bun?.server?.pendingRequests ?? pending;
      return { requests, tunnels: countTunnels(proxy) };
    },
    async stopAccepting() {
      isStopping = true;
      if (connections === undefined) void redirect?.close().catch(() => {});
      if (connections !== undefined) {
        await connections.stopAccepting();
        endPolling?.();
      } else if (server.bun !== undefined) void server.close();
    },
    admitUpgrade(message) {
      if ("stream" in message) {
        // A request with `Expect: 100-continue` is no upgrade (RFC 8441 §4), and `guard` applies the limits to it.
        if (message.headers[":protocol"] === undefined) return true;
        const { stream } = message;
        if (stream.headersSent) return false;
        const refusal = refuse(message) ?? refuseBeyond(connections?.noteUpgrade(message), message);
        if (refusal === undefined) return true;
        const fields = Object.fromEntries(refusal.headers);
        stream.respond({ ":status": refusal.status, ...fields }, { endStream: true });
        return false;
      }
      // If this returns false, Node emits `request` instead, and `guard` refuses the request for the same reason.
      if (isTooLarge(message, limits) || connections?.limitBeyond(message)) return false;
      connections?.noteUpgrade(message);
      return true;
    },
    isFinished(proxy, grace) {
      connections?.closeIdle(grace);
      const { requests, tunnels } = front.countRunning(proxy);
      // Deno's server is closed only after all WebSockets have ended, because closing it would end them immediately. Until
      // then, it accepts connections, and closes each after one response.
      if (server.deno !== undefined && tunnels === 0 && !isClosed) {
        isClosed = true;
        void server.close().catch(() => {});
        // The process may exit before Deno removes the file.
        if (socketPath !== undefined) removeSocket(socketPath);
      }
      return requests + tunnels === 0 && (connections?.all.size ?? 0) === 0;
    },
  };
  return front;
}

/** Returns the options that all servers of the command have. */
function toServerOptions(hostname: string, limits: ResolvedClientLimits, worker?: WorkerPart) {
  return {
    hostname,
    silent: true,
    gracefulShutdown: false,
    node: {
      ...nodeLimits(limits),
      backlog: BACKLOG,
      // With `exclusive: false`, the parent process owns the listening socket, and passes connections to the workers. The
      // workers then also share the keys of TLS session tickets, so a client may resume its session with another worker.
      ...(worker && { exclusive: false }),
    },
    bun: {
      // Turn off Bun's idle timeout, which would end even a body whose chunks still arrive.
      idleTimeout: 0,
      // In development mode, Bun would send the stack and the source of an exception to the client.
      development: false,
      maxRequestBodySize: Number.MAX_SAFE_INTEGER,
    },
    deno: { onError: answerException },
  };
}

/**
 * Answers requests with `Expect: 100-continue` without the 100 that Node would send first, so that clients do not send bodies
 * that are never read (RFC 9110 §10.1.1).
 */
function refuseContinue(server: NetServer): void {
  server.on("checkContinue", (req: IncomingMessage, res: ServerResponse) =>
    server.emit("request", req, res),
  );
}

const isOnNode = !["Bun", "Deno"].some((name) => name in globalThis);

/** Why a request beyond a limit is refused, as the log says it; `causes.ts` has the fixes. */
const CAUSES: Readonly<Record<Limit, string>> = {
  maxConnections: "all connections are in use",
  maxPerAddress: "all connections of this address are in use",
};

const LOOP = "or does a target lead back to this proxy? (--via detects it)";

function reportRefusal(reason: string, workers: number | undefined): void {
  const share = workers === undefined ? "" : ` (each of ${workers} workers has its share of it)`;
  printWarning(`connections are refused: ${reason}${share}; ${LOOP}`);
}

/** The number of sockets that listen during an overload. They are closed and opened again several times a second. */
const FEW_LISTENERS = 8;

/**
 * Watches for overloads of a server. After the first refusal, only the sockets in `more` are opened again: Node's server
 * restarts its timer for late header sections whenever it listens.
 * @param more the further listening sockets on the port of `server`
 */
function watchOverload(
  connections: ClientConnections,
  server: NetServer,
  more: readonly NetServer[],
): Overload {
  const { address: host, port } = server.address() as AddressInfo;
  const reportClosed = (error: unknown): void =>
    printWarning(`cannot listen on port ${port} again: ${String(error)}`);
  return new Overload(nearHost(host), port, {
    countRunning: () => connections.running.size,
    shed: (share) => connections.shed(share),
    close: () => closeListeners([server, ...more]),
    reopen: (all, isWanted) => {
      const listeners = all ? more : more.slice(0, FEW_LISTENERS);
      return reopenListeners(listeners, { host, port }, isWanted, reportClosed);
    },
    report: () =>
      reportRefusal(
        "the process is overloaded; use more processes (--workers); a number in --max-connections turns this off",
        undefined,
      ),
  });
}

function countTunnels(proxy: Pick<Proxy, "stats">): number {
  const origins = Object.values(proxy.stats()?.origins ?? {});
  return origins.reduce((sum, { tunnels }) => sum + tunnels, 0);
}

/**
 * Answers a request whose handler throws on Deno. Deno's server calls this function also when the body of a response breaks
 * off. By default, Deno would print the stack trace of each exception, but the log has already reported the errors of
 * proxies, with cause and fix.
 */
function answerException(error: unknown): Response {
  if (!(error instanceof ProxyError)) console.error(error);
  return new Response("Internal Server Error\n", { status: 500 });
}

function explainRefusal(error: unknown, flag: string, port: number, host: string): UsageError {
  const { code = "", message } = error as Error & { code?: string };
  switch (code) {
    case "EADDRINUSE":
      return new UsageError(
        `port ${port} is in use: use ${flag} with another, or 0 for a free one`,
      );
    case "EACCES":
      return new UsageError(
        `no permission to listen on port ${port}: use ${flag} with one above 1023`,
      );
    case "EADDRNOTAVAIL":
    case "EAI_AGAIN":
    case "ENOTFOUND":
      return new UsageError(
        `host ${quoteInput(host)} is not an address of this machine: use --host ${suggestHosts(host)}`,
      );
    default:
      return new UsageError(
        `--host ${quoteInput(host)} ${flag} ${port} cannot be used: ${message}`,
      );
  }
}
