/**
 * Listening on a Unix domain socket instead of a port, or on a named pipe of Windows, which has no file.
 *
 * The runtimes remove the file of a socket when they close it. The file of a killed process stays, and prevents the next
 * process from listening.
 */
import { chmodSync, existsSync, lstatSync, rmSync, type Stats } from "node:fs";
import type { IncomingMessage } from "node:http";
import { connect } from "node:net";
import { dirname } from "node:path";
import process from "node:process";
import type { ServerOptions, ServerRequest } from "srvx";
import { findRefusal } from "../config/problems.ts";
import type { ReadConfig } from "../config/settings.ts";
import type { ListenOptions } from "../flags/commandoptions.ts";
import type { RouteOptions } from "../flags/severalupstreams.ts";
import { UsageError } from "../flags/read.ts";
import { claimName } from "./listeners.ts";
import { LOOPBACK } from "./loopback.ts";

/** Returns the path of `unix:/path`; undefined for a host name or an address. */
export function readSocketPath(host: string): string | undefined {
  return host.startsWith("unix:") ? host.slice("unix:".length) : undefined;
}

/**
 * Makes sure that `socketMode` has an effect. One exception is allowed: the config file sets it for a socket, and a flag
 * replaces that socket with another host.
 * @throws UsageError that names the option and the fix
 */
export function checkSocketMode(flags: ListenOptions, { server = {} }: ReadConfig): void {
  const isFlag = flags.socketMode !== undefined;
  const hosts = isFlag ? [flags.host ?? server.host] : [flags.host, server.host];
  const isOnSocket = hosts.some((host = "") => readSocketPath(host) !== undefined);
  if (isOnSocket || (!isFlag && server.socketMode === undefined)) return;
  throw new UsageError(
    isFlag
      ? "--socket-mode does nothing without --host unix:/path"
      : 'server.socketMode does nothing without server: { host: "unix:/path" }',
  );
}

/** Returns the options with which the server of each runtime listens on a socket. */
export function toSocketOptions(
  path: string,
): Record<"node" | "bun" | "deno", object> & Pick<ServerOptions, "port"> {
  const none = { port: undefined, hostname: undefined };
  return { node: { path }, bun: { unix: path, ...none }, deno: { path, ...none } };
}

/**
 * Makes sure that a server can listen on a socket: removes a socket file that a killed process has left behind, if no process
 * listens on it.
 *
 * To replace such a file, this process holds a claim until the new socket listens. Without the claim, the second of two
 * commands that start at the same time could remove the new file of the first. If there is no file, no claim is needed.
 * @returns a function that releases the claim; call it when the socket listens
 * @throws UsageError if another process listens on the socket, if the file is no socket, or if the path is too long
 */
export async function claimSocket(path: string): Promise<() => void> {
  // A path to listen on has the same limits as a path in a target, so check it as a target.
  const wrong = findRefusal({ target: `unix:${path}` });
  if (wrong !== undefined) throw refuseSocket(path, wrong.replace(/^.*": /s, ""));
  const file = readStats(path);
  if (file === undefined) return () => {};
  if (!file.isSocket())
    throw refuseSocket(path, "there is a file that is no socket; use another path");
  const release = await claimName(`${file.dev}:${file.ino}`);
  try {
    if (await isAnswered(path)) throw refuseSocket(path, "another process listens there");
    removeSocket(path);
    return release;
  } catch (error) {
    release();
    throw error;
  }
}

/**
 * Returns the address in a header of the PROXY protocol, or else 127.0.0.1. The request of an upgrade has no `ip`, but its
 * context has Node's request.
 */
function clientOnSocket(request: Request, context?: unknown): string {
  const { req } = (context ?? {}) as { req?: IncomingMessage };
  return (request as ServerRequest).ip || req?.socket.remoteAddress || LOOPBACK;
}

/**
 * Sets the client address of requests that arrive on a socket to 127.0.0.1: like the clients of the loopback interface, the
 * clients of a socket are on this machine. `trustProxy: ["loopback"]` therefore trusts a proxy that connects to the socket.
 */
export function nameSocketClients(options: RouteOptions): RouteOptions {
  return { clientAddress: clientOnSocket, ...options };
}

/** Sets the permissions of the socket's file. A user who may write to the file may connect to the socket. */
export function setSocketMode(path: string, mode: string | undefined): void {
  if (mode !== undefined && hasFile) chmodSync(path, Number.parseInt(mode, 8));
}

export function removeSocket(path: string): void {
  if (hasFile) rmSync(path, { force: true });
}

/** Returns why a server cannot listen on a socket. */
export function explainSocketRefusal(error: unknown, path: string): UsageError {
  const { code = "", message } = error as Error & { code?: string };
  switch (code) {
    case "EADDRINUSE":
      return refuseSocket(path, "another process listens there");
    // Node reports EACCES also for a folder that does not exist.
    case "ENOENT":
    case "EACCES":
    case "EPERM":
      return refuseSocket(
        path,
        existsSync(dirname(path))
          ? "the user of this process may not create it"
          : "its folder does not exist",
      );
    default:
      return refuseSocket(path, message);
  }
}

const hasFile = process.platform !== "win32";

function readStats(path: string): Stats | undefined {
  return hasFile ? lstatSync(path, { throwIfNoEntry: false }) : undefined;
}

/**
 * Whether a process listens on a socket. A process that is too busy to accept, or that does not permit this user to connect,
 * also counts.
 */
async function isAnswered(path: string): Promise<boolean> {
  const socket = connect({ path });
  try {
    return await new Promise((resolve) => {
      socket.on("connect", () => resolve(true));
      socket.on("error", ({ code }: NodeJS.ErrnoException) =>
        resolve(code !== "ECONNREFUSED" && code !== "ENOENT"),
      );
    });
  } finally {
    socket.destroy();
  }
}

function refuseSocket(path: string, why: string): UsageError {
  return new UsageError(`host ${JSON.stringify(`unix:${path}`)}: ${why}`);
}
