/** Hides members of Node's requests and sockets, as in a version of Node that has renamed them. */
import type { IncomingMessage } from "node:http";
import type { Socket } from "node:net";

/** Returns the object without these members. Its other members are unchanged. */
export function hide<T extends object>(object: T, ...names: string[]): T {
  const hidden = names.map((name) => [name, { value: undefined, writable: true }] as const);
  return Object.create(object, Object.fromEntries(hidden)) as T;
}

/** Returns the request with a socket that lacks these members. */
export function hideOnSocket(req: IncomingMessage, ...names: string[]): IncomingMessage {
  const socket: Socket = hide(req.socket, ...names);
  return Object.create(req, { socket: { value: socket } }) as IncomingMessage;
}
