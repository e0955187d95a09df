/**
 * Several listening sockets on one port, in one process.
 *
 * Node accepts one connection from a listening socket in each turn of its event loop (libuv). If running requests make the
 * turns long, new clients wait: beside 1000 busy connections, none of 300 new ones was accepted within 5 s. With 128 sockets,
 * a turn takes up to 128, and the system spreads the clients over them (`SO_REUSEPORT`).
 */
import { once } from "node:events";
import { createServer, type Server, type ServerOpts } from "node:net";
import process from "node:process";
import { endPollingFor } from "./pollend.ts";

/**
 * The number of connections that the system keeps until they are accepted: Linux takes at most its `net.core.somaxconn`, which
 * is 4096. Node's own default, 511, overflows when thousands of clients connect at the same time.
 */
export const BACKLOG = 4096;
/** Milliseconds between two attempts to claim a name, and the maximum for all attempts. */
const CLAIM_RETRY_INTERVAL = 20;
const CLAIM_TIMEOUT = 2000;

/**
 * Whether several sockets of this process may share a port: Linux spreads connections over them. Node has the option from 22.12
 * and 23.1 on, and refuses it on macOS and Windows.
 */
export const canSharePort: boolean = process.platform === "linux" && hasReusePort();

function hasReusePort(): boolean {
  const [major = 0, minor = 0] = process.versions.node.split(".").map(Number);
  return major > 23 || (major === 23 && minor >= 1) || (major === 22 && minor >= 12);
}

/**
 * Makes sure that no other process listens on a port, before sockets that would share it are opened: the system lets a second
 * command of the same user share them, and the two would take each other's clients.
 *
 * A probe, which is a socket without `reusePort`, finds out. It must be closed before the shared sockets are opened. Until
 * they are open, this process holds a claim, so that two commands that start at the same time do not both find the port free.
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
 * Claims a name: another process that claims it waits until it is released, for up to `CLAIM_TIMEOUT`. Only Linux has such
 * names, in its abstract namespace, which belongs to the same network namespace as ports. A claim ends with its process.
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

/** Listens as soon as no other process does. Returns undefined after the deadline: then another program keeps the name. */
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
 * Opens further listening sockets on the port of a server. They hand their connections to the server.
 * @param count the number of sockets with the server's own
 * @param options how the server's own socket sets up connections
 */
export async function listenAlso(
  server: Server,
  host: string,
  count: number,
  options: ServerOpts,
): Promise<Server[]> {
  const { port } = server.address() as { port: number };
  endPollingFor(server);
  const more = Array.from({ length: count - 1 }, () =>
    createServer(options, (socket) => server.emit("connection", socket)),
  );
  const opening = more.map(async (each) => {
    each.listen({ port, host, reusePort: true, backlog: BACKLOG });
    await once(each, "listening");
    // A connection that cannot be accepted is no reason to end the process.
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
