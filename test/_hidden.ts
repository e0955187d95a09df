/** Messages of Node's under which a member has another name, as in a version of Node that renamed it. */
import type { IncomingMessage } from "node:http";
import type { Socket } from "node:net";

/** The same object without the members; all others stay as they are. */
export function hide<T extends object>(object: T, ...names: string[]): T {
  const hidden = names.map((name) => [name, { value: undefined, writable: true }] as const);
  return Object.create(object, Object.fromEntries(hidden)) as T;
}

/** The same request, whose socket lacks the members. */
export function hideOnSocket(req: IncomingMessage, ...names: string[]): IncomingMessage {
  const socket: Socket = hide(req.socket, ...names);
  return Object.create(req, { socket: { value: socket } }) as IncomingMessage;
}
