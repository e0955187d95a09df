/**
 * Ends libuv's polling after a connection was accepted, so that new clients are served while very many others are busy.
 *
 * - Rests on: in one turn of the event loop, libuv polls up to 48 times while each poll finds 1024 events, and it begins to
 *   watch new sockets only at the beginning of a turn (`uv__io_poll`). Beside 1000 busy connections, a connection that was
 *   just accepted is therefore not read for up to 5 s. A signal that arrives ends the polling of the current turn. SIGURG has
 *   no other effect: by default, the system ignores it.
 * - Check: the next signal is sent only after the previous one has arrived.
 * - Otherwise: new clients wait until a poll finds fewer events.
 * - Test: test/command/pollend.node.test.ts, "while a signal has not arrived, no other is sent".
 */
import type { EventEmitter } from "node:events";
import process from "node:process";

/** The part of `process` that sends signals to this process, and receives them. */
export type Signals = Pick<typeof process, "pid" | "kill" | "on" | "off">;

const SIGNAL = "SIGURG";
/** Milliseconds. A signal that takes longer to arrive shows that the turns of the event loop are long. */
const LONG_TURN = 20;
/**
 * Milliseconds after a new connection during which polling is ended in each turn, as long as turns are long. They are enough
 * for the request of the connection, which may also need a new connection to the upstream.
 */
const DURATION = 1000;

/**
 * Ends polling early in each turn in which a server accepts a connection, and in later turns while turns are long.
 * @returns a function that ends this
 */
export function endPollingFor(server: EventEmitter, signals: Signals = process): () => void {
  let isOnItsWay = false;
  let sentAt = 0;
  let until = 0;
  const send = (now: number): void => {
    if (isOnItsWay) return;
    isOnItsWay = true;
    sentAt = now;
    signals.kill(signals.pid, SIGNAL);
  };
  const onSignal = (): void => {
    isOnItsWay = false;
    const now = performance.now();
    if (now - sentAt > LONG_TURN && now < until) send(now);
  };
  signals.on(SIGNAL, onSignal);
  server.on("connection", () => {
    const now = performance.now();
    until = now + DURATION;
    send(now);
  });
  return () => void signals.off(SIGNAL, onSignal);
}
