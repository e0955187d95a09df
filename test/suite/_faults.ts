/** Faults of upstreams, and the response that the proxy's client must get in each case. */
import type { Call } from "../helpers/link.ts";
import type { SetupName } from "../hosts/_setups.ts";
import { pause } from "../helpers/wait.ts";
import { chunk, lastChunk } from "../helpers/wire.ts";

/** Answers a request. `arrived` waits until the client has received bytes of the response. */
type FaultScript = (call: Call, arrived: () => Promise<void>) => void | Promise<void>;

export interface Fault {
  readonly script: FaultScript;
  readonly setup?: SetupName;
  readonly method?: string;
  readonly body?: Uint8Array;
  readonly status: number;
  /** The RFC 9209 error type in Proxy-Status, where the proxy itself must answer with an error. */
  readonly code?: RegExp;
  readonly text?: string;
  /** Whether the body is truncated. The client must notice that. */
  readonly cut?: boolean;
  /** Whether the proxy must keep the upstream connection for the next request. Otherwise, it must close the connection. */
  readonly kept?: boolean;
}

const chunkedHead = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
const sizedHead = (size: number): string => `HTTP/1.1 200 OK\r\nContent-Length: ${size}\r\n\r\n`;
const hints = "HTTP/1.1 103 Early Hints\r\nLink: </a.css>; rel=preload\r\n\r\n";
const poison = "HTTP/1.1 200 OK\r\nContent-Length: 8\r\n\r\npoisoned";

const terminated = /connection_terminated/;
const incomplete = /(connection_terminated|http_response_incomplete)/;
const overflow = /http_response_header_section_size/;

/** Writes one chunk per turn of the event loop, so that each is sent in a separate packet. */
async function trickle(call: Call, pieces: Iterable<string>): Promise<void> {
  for (const piece of pieces) {
    call.write(piece);
    await new Promise(setImmediate);
  }
}

/** Writes the text repeatedly until the connection is closed. */
async function flood(call: Call, text: string, interval: number): Promise<void> {
  while (!call.link.isClosed) {
    call.write(text);
    await pause(interval);
  }
}

/**
 * Writes the text, and calls `end` after a pause. If the text contains bytes of a body, the pause begins when the client has
 * received bytes.
 */
function cutAfter(text: string, end: (call: Call) => void): FaultScript {
  return async (call, arrived) => {
    call.write(text);
    if (text.includes("hello")) await arrived();
    await pause(50);
    end(call);
  };
}

const close = (call: Call): void => call.close();
const reset = (call: Call): void => call.reset();

export const faults: Record<string, Fault> = {
  "refuses the connection": {
    setup: "refused",
    script: () => {},
    status: 502,
    code: /connection_refused/,
  },
  "accepts and hangs": {
    setup: "lasting",
    script: () => {},
    status: 504,
    code: /http_response_timeout/,
  },
  "reads nothing of an upload": {
    setup: "lasting",
    script: (call) => void call.link.socket.pause(),
    method: "POST",
    body: Buffer.alloc(32 * 1024 * 1024),
    status: 504,
    code: /http_response_timeout/,
  },
  "resets immediately": { script: reset, status: 502, code: terminated },
  "resets after some bytes of the status line": {
    script: cutAfter("HTTP/1.1 20", reset),
    status: 502,
    code: terminated,
  },
  "resets after some bytes of the fields": {
    script: cutAfter("HTTP/1.1 200 OK\r\nX-A: b", reset),
    status: 502,
    code: terminated,
  },
  "half-closes without an answer": { script: close, status: 502, code: terminated },
  "half-closes within the head": {
    script: cutAfter("HTTP/1.1 200 OK\r\nX-A: b\r\n", close),
    status: 502,
    code: incomplete,
  },
  "half-closes after a whole answer": {
    script: (call) => {
      call.reply(200, [], "whole");
      call.close();
    },
    status: 200,
    text: "whole",
  },
  "half-closes after an interim response": {
    script: cutAfter(hints, close),
    status: 502,
    code: incomplete,
  },
  "trickles head and body": {
    script: (call) => trickle(call, `${sizedHead(5)}hello`),
    status: 200,
    text: "hello",
    kept: true,
  },
  "drips a chunked body": {
    script: (call) =>
      trickle(call, `${chunkedHead}${chunk("he").toString()}3;a=b\r\nllo\r\n0\r\n\r\n`),
    status: 200,
    text: "hello",
    kept: true,
  },
  "drips, then hangs": {
    setup: "stalling",
    script: (call) => trickle(call, `${chunkedHead}5\r\nhel`),
    status: 200,
    text: "hel",
    cut: true,
  },
  "announces less than it sends": {
    script: (call) => call.write(`${sizedHead(5)}hello and more`),
    status: 200,
    text: "hello",
  },
  "announces more than it sends, and ends": {
    script: cutAfter(`${sizedHead(10)}hello`, close),
    status: 200,
    text: "hello",
    cut: true,
  },
  "announces more than it sends, and hangs": {
    setup: "stalling",
    script: (call) => call.write(`${sizedHead(10)}hello`),
    status: 200,
    text: "hello",
    cut: true,
  },
  "sends 60 interim responses first": {
    script: (call) => call.write(hints.repeat(60), `${sizedHead(5)}hello`),
    status: 200,
    text: "hello",
    kept: true,
  },
  "sends 1000 interim responses first": {
    script: (call) => call.write(hints.repeat(1000), `${sizedHead(5)}hello`),
    status: 502,
    code: /http_protocol_error/,
  },
  "sends interim responses without end": {
    setup: "lasting",
    script: (call) => flood(call, hints.repeat(40), 1),
    status: 502,
    code: /http_protocol_error/,
  },
  "sends a field of 1 MiB": {
    script: (call) => call.reply(200, [["X-A", "x".repeat(1024 * 1024)]]),
    status: 502,
    code: overflow,
  },
  "sends 100 000 fields": {
    script: (call) => call.write("HTTP/1.1 200 OK\r\n", "X-A: b\r\n".repeat(100_000)),
    status: 502,
    code: overflow,
  },
  "sends fields without end": {
    script: (call) => {
      call.write("HTTP/1.1 200 OK\r\n");
      return flood(call, "X-A: b\r\n".repeat(1000), 1);
    },
    status: 502,
    code: overflow,
  },
  "sends garbage": {
    script: (call) => call.write("\0\x01 nothing of HTTP\r\n\r\n"),
    status: 502,
    code: /http_protocol_error/,
  },
  "sends another answer directly after its answer": {
    script: (call) => call.write(`${sizedHead(5)}hello`, poison),
    status: 200,
    text: "hello",
  },
  "sends another answer a little later": {
    script: cutAfter(`${sizedHead(5)}hello`, (call) => call.write(poison)),
    status: 200,
    text: "hello",
  },
  "sends half of another answer a little later": {
    script: cutAfter(`${sizedHead(5)}hello`, (call) => call.write(poison.slice(0, -8))),
    status: 200,
    text: "hello",
  },
  "answers HEAD with a body": {
    script: (call) => call.reply(200, [], poison),
    method: "HEAD",
    status: 200,
    text: "",
  },
  "sends a body with 304": {
    script: (call) => call.reply(304, [], poison),
    status: 304,
    text: "",
  },
  "sends a body with 204": {
    script: (call) => call.reply(204, [], poison),
    status: 204,
    text: "",
  },
  "half-closes within a chunk": {
    script: cutAfter(`${chunkedHead}a\r\nhello`, close),
    status: 200,
    text: "hello",
    cut: true,
  },
  "resets within a chunk": {
    script: cutAfter(`${chunkedHead}a\r\nhello`, reset),
    status: 200,
    text: "hello",
    cut: true,
  },
  "half-closes before the last chunk": {
    script: cutAfter(`${chunkedHead}5\r\nhello\r\n`, close),
    status: 200,
    text: "hello",
    cut: true,
  },
  "sends a chunk without a size": {
    script: cutAfter(`${chunkedHead}5\r\nhello\r\n`, (call) => call.write("zz\r\n", lastChunk)),
    status: 200,
    text: "hello",
    cut: true,
  },
  "sends a chunk longer than its size": {
    script: cutAfter(`${chunkedHead}5\r\nhello`, (call) => call.write(" and more", lastChunk)),
    status: 200,
    text: "hello",
    cut: true,
  },
};
