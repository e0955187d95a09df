/**
 * Chooses the requests that a Node server hands over as upgrades, and handles the others.
 *
 * The server's choice.
 * - Rests on: a server asks `shouldUpgradeCallback(req)` for each request with `Upgrade`, from Node 22.21 and 24.9 on, and
 *   treats the request as an ordinary one if the answer is false. Only the option of `createServer` is documented, not the
 *   property. The default function counts the server's listeners for `upgrade`.
 * - Check: the server must have the property.
 * - Otherwise: a server with a listener hands over every request with `Upgrade`. A request that no other listener takes, and
 *   whose protocol no proxy carries, is given to the server a second time, without the connection option `upgrade`: Node
 *   documents that emitting `connection` gives a connection to a server. Node 26 parses the body as well. Given the head again,
 *   the server would take the client's next request for the body, so a request with a body is refused there.
 * - Test: test/runtimes/node/internals/upgradechoice.test.ts, "without `shouldUpgradeCallback`".
 */
import type { IncomingMessage } from "node:http";
import type { Server, Socket } from "node:net";
import type { Duplex } from "node:stream";
import { trimOws } from "../../../src/fields/headers.ts";
import { turnAfterAll } from "../turns.ts";

type ShouldUpgrade = (this: Server, req: IncomingMessage) => boolean;

/** A server, which asks `shouldUpgradeCallback` if its version of Node has this member. */
type ChoosingServer = Server & { shouldUpgradeCallback?: ShouldUpgrade };

/**
 * Makes the server ask `choose` which requests are upgrades, if it has `shouldUpgradeCallback`.
 * @param choose returns whether a request is an upgrade, given what the server would answer without the proxy's listener
 * @param countOthers returns the number of listeners for `upgrade` other than the proxy's
 */
export function chooseUpgrades(
  server: Server,
  choose: (req: IncomingMessage, byServer: boolean) => boolean,
  countOthers: () => number,
): void {
  const choosing: ChoosingServer = server;
  const before = choosing.shouldUpgradeCallback;
  if (typeof before !== "function") return;
  // The default function counts the server's listeners for `upgrade`. Call it on an object that leaves out the proxy's own
  // listener.
  const withoutOurs = Object.create(server) as Server;
  withoutOurs.listenerCount = (event: string | symbol) =>
    event === "upgrade" ? countOthers() : server.listenerCount(event);
  choosing.shouldUpgradeCallback = (req) => choose(req, before.call(withoutOurs, req));
}

/**
 * Gives a request that was handed over as an upgrade to the server again, as an ordinary request with its body.
 * @returns whether the server takes it; false over TLS (where no client asks for `h2c`), if the body has been parsed, or if
 * the head cannot be written again
 */
export function handleAsRequest(
  server: Server,
  req: IncomingMessage,
  socket: Duplex,
  head: Uint8Array,
): boolean {
  const text = writeAgain(req);
  if ((socket as { encrypted?: boolean }).encrypted === true || text === undefined) return false;
  // If the body has yet to arrive, `socket` is not the connection itself, but a stream of the bytes behind the body.
  if (req.readableLength > 0 || socket !== req.socket) return false;
  const inject = (): void => {
    if (socket.destroyed) return;
    socket.unshift(Buffer.concat([Buffer.from(text, "latin1"), head]));
    server.emit("connection", socket as Socket);
  };
  const turn = turnAfterAll(req.socket);
  if (turn === undefined) inject();
  else void turn.then(inject);
  return true;
}

/** Returns the head of a request without the connection option `upgrade`; undefined if it cannot be written again. */
function writeAgain({ method, url, httpVersion, rawHeaders }: IncomingMessage): string | undefined {
  let lines = `${method} ${url} HTTP/${httpVersion}\r\n`;
  for (let i = 0; i < rawHeaders.length; i += 2) {
    const name = rawHeaders[i] as string;
    const value = rawHeaders[i + 1] as string;
    // A lenient parser accepts folded lines, whose value would begin a new line when written again.
    if (/[\r\n\0]/.test(value)) return undefined;
    const left = name.toLowerCase() === "connection" ? withoutUpgrade(value) : value;
    lines += `${name}: ${left}\r\n`;
  }
  return `${lines}\r\n`;
}

function withoutUpgrade(connection: string): string {
  const options = connection.split(",").map((option) => trimOws(option));
  return options.filter((option) => option.toLowerCase() !== "upgrade").join(", ");
}
