/**
 * Several listening sockets on one port, in one process.
 *
 * Node accepts one connection from a listening socket in each turn of its event loop (libuv). If running requests make the
 * turns long, new clients wait: beside 1000 busy connections, none of 300 new ones was accepted within 5 s. With 128 sockets,
 * a turn accepts up to 128 connections, and the system spreads the clients over the sockets (`SO_REUSEPORT`).
 */
import { once } from "node:events";
import { createServer, Server as NetServer, type Server, type ServerOpts } from "node:net";
import process from "node:process";

/**
 * The number of new connections that the system queues until this process accepts them. Linux limits it to
 * `net.core.somaxconn`, which is 4096 by default. Node's own default, 511, is too low: when thousands of clients connect at the
 * same time, the queue overflows.
 */
export const BACKLOG = 4096;
/** Milliseconds between two attempts to claim a name, or to listen again. */
const CLAIM_RETRY_INTERVAL = 20;
/** Milliseconds after which no further attempt to claim a name is made. */
const CLAIM_TIMEOUT = 2000;

/**
 * Whether several sockets of this process may share a port: Linux spreads connections over them. Node has the option
 * `reusePort` since 22.12 and 23.1, and refuses it on macOS and Windows.
 */
export const canSharePort: boolean = process.platform === "linux" && hasReusePort();

function hasReusePort(): boolean {
  const [major = 0, minor = 0] = process.versions.node.split(".").map(Number);
  return major > 23 || (major === 23 && minor >= 1) || (major === 22 && minor >= 12);
}

/**
 * Makes sure that no other process listens on a port, before shared sockets (`reusePort`) are opened on it. Without this
 * check, the system would let a second command of the same user share the port, and each command would take clients of the
 * other.
 *
 * The check listens on the port with a probe, which is a socket without `reusePort`. The probe must be closed before the
 * shared sockets are opened. Until these are open, this process holds a claim, so that two commands that start at the same
 * time do not both find the port free.
 * @returns a function that releases the claim; call it when the sockets are open
 * @throws the error of the system, such as EADDRINUSE
 */
export async function claimPort(port: number, host: string): Promise<() => void> {
  const release = await claimName(String(port));
  try {
    const probe = createServer((socket) => socket.destroy());
    probe.listen({ port, host, exclusive: true });
    await once(probe, "listening");
    await new Promise((resolve) => probe.close(resolve));
    return release;
  } catch (error) {
    release();
    throw error;
  }
}

/**
 * Claims a name. Another process that claims the same name waits until the claim is released; after `CLAIM_TIMEOUT`, it
 * continues without a claim. Only Linux has such names: those of abstract sockets, which belong to the same network namespace
 * as ports. A claim ends with its process. On other systems, this function does nothing.
 * @returns a function that releases the claim
 */
export async function claimName(name: string): Promise<() => void> {
  if (process.platform !== "linux") return () => {};
  const claim = await listenUntil(
    { path: `\0fetchway:${name}` },
    performance.now() + CLAIM_TIMEOUT,
  );
  return () => void claim?.close();
}

/**
 * Listens as soon as no other process listens on the same name. Returns undefined if another process still does at the
 * deadline.
 */
async function listenUntil(options: object, deadline: number): Promise<Server | undefined> {
  for (;;) {
    const server = createServer((socket) => socket.destroy()).unref();
    try {
      server.listen(options);
      await once(server, "listening");
      return server;
    } catch {
      if (performance.now() > deadline) return undefined;
      await new Promise((resolve) => setTimeout(resolve, CLAIM_RETRY_INTERVAL));
    }
  }
}

/**
 * Opens further listening sockets on the port of a server. They pass their connections to the server.
 * @param count the number of listening sockets, including the server's own
 * @param options the options with which the server's own socket sets up connections
 */
export async function listenAlso(
  server: Server,
  host: string,
  count: number,
  options: ServerOpts,
): Promise<Server[]> {
  const { port } = server.address() as { port: number };
  const more = Array.from({ length: count - 1 }, () =>
    createServer(options, (socket) => server.emit("connection", socket)),
  );
  const opening = more.map(async (each) => {
    each.listen({ port, host, reusePort: true, backlog: BACKLOG });
    await once(each, "listening");
    // Without a listener for `error`, a connection that cannot be accepted would end the process.
    each.on("error", () => {});
  });
  try {
    await Promise.all(opening);
    return more;
  } catch (error) {
    await Promise.allSettled(opening);
    for (const each of more) each.close();
    throw error;
  }
}

/** Closes listening sockets: the system refuses new connections, and resets those that have not been accepted yet. */
export function closeListeners(listeners: readonly NetServer[]): void {
  // `close` of an HTTP server would also close its idle connections.
  for (const listener of listeners) NetServer.prototype.close.call(listener);
}

/**
 * Tries to open those of the listening sockets that are closed, again and again until one of them listens, or until `isWanted`
 * returns false.
 * @param isWanted returns whether the sockets are still wanted
 * @param report is called with the error if nothing listens for a second
 */
export async function reopenListeners(
  listeners: readonly NetServer[],
  address: { readonly host: string; readonly port: number },
  isWanted: () => boolean,
  report: (error: unknown) => void,
): Promise<void> {
  const begin = performance.now();
  let isReported = false;
  while (isWanted()) {
    const closed = listeners.filter(({ listening }) => !listening);
    const results = await Promise.allSettled(
      closed.map(async (listener) => {
        listener.listen({ ...address, reusePort: true, backlog: BACKLOG });
        await once(listener, "listening");
      }),
    );
    if (listeners.some(({ listening }) => listening)) return;
    const failed = results.find((result) => result.status === "rejected");
    if (failed !== undefined && !isReported && performance.now() - begin > 1000) {
      isReported = true;
      report(failed.reason);
    }
    await new Promise((resolve) => setTimeout(resolve, CLAIM_RETRY_INTERVAL));
  }
}
