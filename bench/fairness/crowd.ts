/**
 * A process with many clients that hold connections. Its arguments are the kind of the clients, the port, and the number of
 * clients. It reports how many clients have begun, and how many have ended.
 */
import { get } from "node:http";
import { type ClientHttp2Session, connect as connectHttp2 } from "node:http2";
import { connect, type Socket } from "node:net";
import process from "node:process";

export type Crowd = "readers" | "uploads" | "polls" | "events";

/** The number of polls on one HTTP/2 connection. */
const POLLS = 120;
/** The number of client addresses among which the event streams are divided. */
const ADDRESSES = 50;
/** The number of connections that are opened at the same time. */
const PARALLEL = 64;
/** Milliseconds between two bytes of a slow client. */
const PAUSE = 1000;

const [crowd, ...numbers] = process.argv.slice(2);
const [port = 0, count = 0] = numbers.map(Number);
let begun = 0;
let ended = 0;

/** Opens a connection, sends a request on it, and then calls `act` about once a second. */
function openSlow(request: string, act: (socket: Socket) => void, next: () => void): void {
  const socket = connect(port, "127.0.0.1");
  socket.on("connect", () => {
    socket.write(request);
    socket.pause();
    begun++;
    next();
  });
  const timer = setInterval(() => act(socket), PAUSE);
  socket.on("error", next).on("close", () => {
    clearInterval(timer);
    ended++;
  });
}

function openPolls(_: number, next: () => void): void {
  const session: ClientHttp2Session = connectHttp2(`https://127.0.0.1:${port}`, {
    rejectUnauthorized: false,
  });
  session.on("error", next).on("close", () => ended++);
  session.on("connect", () => {
    for (let n = 0; n < POLLS; n++) session.request({ ":path": "/poll" }).on("error", () => {});
    begun++;
    next();
  });
}

function openEvents(n: number, next: () => void): void {
  const localAddress = `127.0.1.${1 + (n % ADDRESSES)}`;
  const options = { port, host: "127.0.0.1", path: "/events", localAddress, agent: false };
  const request = get(options, (response) => {
    if (response.statusCode === 200) begun++;
    response.resume().on("error", () => {});
    response.on("close", () => ended++);
    next();
  });
  request.on("error", next);
}

const open: Record<string, (n: number, next: () => void) => void> = {
  readers: (_, next) =>
    openSlow("GET /big HTTP/1.1\r\nHost: a\r\n\r\n", (socket) => void socket.read(1), next),
  uploads: (_, next) =>
    openSlow(
      "POST /upload HTTP/1.1\r\nHost: a\r\nContent-Length: 1000000\r\n\r\nx",
      (socket) => socket.writable && socket.write("y"),
      next,
    ),
  polls: openPolls,
  events: openEvents,
};

let asked = 0;
function openNext(): void {
  if (asked >= count) return;
  let isPending = true;
  open[crowd ?? ""]?.(asked++, () => {
    if (isPending) openNext();
    isPending = false;
  });
}
for (let n = 0; n < PARALLEL; n++) openNext();

// Ignore the error if the parent has ended before it receives the message.
setInterval(() => process.send?.({ begun, ended }, undefined, undefined, () => {}), 100);
process.on("disconnect", () => process.exit());
