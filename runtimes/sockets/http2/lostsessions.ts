/**
 * Ends HTTP/2 sessions over TLS whose peer has reset the connection during a write.
 *
 * Node does not read from a session's connection during a write. If the peer resets the connection during a write, the write
 * fails in the TCP socket, but Node before version 26 drops that failure in the TLS layer above. Node then waits for the write
 * forever: the session and its streams stay open, and so do their requests to the upstream.
 *
 * - Rests on: `_handle` of a TLS socket is its TLS layer, `_parent` the TCP socket below, and `writeQueueSize` of a handle
 *   counts the bytes that wait in it. If bytes wait in the TLS layer, none wait in the TCP socket, and the TCP socket has sent
 *   none since the last check, then the TLS layer waits for a write that has failed.
 * - Check: both counts must be numbers, and the socket must have a `_parent`, which a connection without TLS does not have.
 * - Otherwise: the session ends at the server's timeouts. Connections without TLS need no help: Node notices their failure.
 * - Test: test/runtimes/sockets/http2/lostsessions.node.test.ts.
 */
import type { Http2Session } from "node:http2";
import type { Socket } from "node:net";

/** A socket, with the members that Node does not document. */
interface Layer {
  readonly _handle?: { readonly writeQueueSize?: unknown } | null | undefined;
  /** The TCP socket below a TLS socket; null for a TCP socket. */
  readonly _parent?: Socket | null;
}

interface Watched {
  readonly tls: Layer;
  readonly tcp: Socket;
  /** The number of bytes that the TCP socket had sent at the last check, if the session looked stuck then; else -1. */
  sentWhenStuck: number;
}

/** Milliseconds between two checks. A session is destroyed at the second check that finds it stuck. */
const INTERVAL = 300;

const sessions: Map<Http2Session, Watched> = new Map();
const known: WeakSet<Http2Session> = new WeakSet();
let timer: NodeJS.Timeout | undefined;

/**
 * Watches a session, and destroys it within a second after its peer has reset the connection during a write. This ends the
 * session's streams.
 */
export function endWhenLost(session: Http2Session | undefined): void {
  if (session === undefined || session.destroyed || known.has(session)) return;
  known.add(session);
  const { _handle, _parent: tcp } = session.socket as unknown as Layer;
  if (!tcp || waitingIn({ _handle }) === undefined) return;
  // Keep the handle: `session.socket` is a `Proxy` object, which throws once the session is destroyed.
  sessions.set(session, { tls: { _handle }, tcp, sentWhenStuck: -1 });
  session.once("close", () => {
    sessions.delete(session);
    if (sessions.size > 0) return;
    clearInterval(timer);
    timer = undefined;
  });
  timer ??= setInterval(lookAtSessions, INTERVAL).unref();
}

function lookAtSessions(): void {
  for (const [session, watched] of sessions) {
    const { tls, tcp, sentWhenStuck } = watched;
    const isStuck = waitingIn(tcp as Layer) === 0 && (waitingIn(tls) ?? 0) > 0;
    const sent = isStuck ? tcp.bytesWritten : -1;
    watched.sentWhenStuck = sent;
    if (!isStuck || sent !== sentWhenStuck) continue;
    session.destroy();
    // Close the socket as well: a destroyed session leaves it open until the write has ended.
    tcp.destroy();
  }
}

/** Returns the number of bytes that wait in a layer; undefined if this runtime does not show it. */
function waitingIn({ _handle }: Layer): number | undefined {
  const size = _handle?.writeQueueSize;
  return typeof size === "number" ? size : undefined;
}
