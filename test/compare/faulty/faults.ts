/** Proxies that break a rule: Fetchway between two relays, which change the bytes or the ends of connections. */
import { connect, createServer, type Server, type Socket } from "node:net";
import { Transform, type TransformCallback } from "node:stream";
import { startHost } from "../../hosts/_host.ts";
import { listen } from "../../helpers/serve.ts";
import type { Contestant } from "../contestant.ts";
import type { RowName } from "../rows.ts";

/** Changes the bytes of a chunk that passes a relay, decoded as latin1. */
type Change = (text: string) => string;

interface Fault {
  /** Changes what clients send to the proxy. */
  readonly request?: Change;
  /** Changes what the upstream sends to the proxy. */
  readonly response?: Change;
  /** Holds back up to this number of bytes of a chunked response until its last chunk. */
  readonly holds?: number;
  /** Text that is added to a chunked response if the upstream ends the connection. */
  readonly adds?: string;
  /** Whether the proxy does not notice when a client disconnects. */
  readonly isDeaf?: true;
  /** Options for Fetchway. */
  readonly options?: object;
  /** The rules that do not hold because of the fault. */
  readonly breaks: readonly RowName[];
}

/** The rules that Fetchway itself does not keep, except those about limits. */
const OWN: readonly RowName[] = ["RFC 9110 §7.6.3: a request is forwarded with Via"];

export const faults: Readonly<Record<string, Fault>> = {
  "has no further fault": { breaks: [] },
  "forwards request fields that Connection names": {
    request: (text) => text.replaceAll(/^connection: (?!upgrade|close|keep-alive\r).*\r\n/gim, ""),
    breaks: [
      "RFC 9110 §7.6.1: request fields that Connection names are not forwarded, nor is its value",
      "a request field that a second Connection line names is not forwarded",
    ],
  },
  "drops the trailer fields of responses": {
    response: (text) => text.replaceAll(/(^|\r\n)0\r\n(?:[\w-]+: .*\r\n)+\r\n/g, "$10\r\n\r\n"),
    breaks: ["trailer fields of a response reach the client, and are announced"],
  },
  "reads Content-Length beside Transfer-Encoding": {
    request: (text) =>
      /^content-length:/im.test(text) ? text.replaceAll(/^transfer-encoding:.*\r\n/gim, "") : text,
    breaks: [
      "RFC 9112 §6.1: an HTTP/1.0 request with Transfer-Encoding is refused, or its connection is closed after it",
      "CVE-2026-54387: a list of transfer codings beside Content-Length hides no second request",
    ],
  },
  "drops interim responses": {
    response: (text) => text.replaceAll(/HTTP\/1\.1 10[23] .*\r\n(?:.+\r\n)*\r\n/g, ""),
    breaks: [
      "RFC 9110 §15.2: 103 responses reach the client, in their order",
      "an interim response reaches the client before the final one has begun",
    ],
  },
  "follows redirects": {
    options: { followRedirects: 5 },
    breaks: ["a 3xx response passes through with its Location"],
  },
  "buffers responses": {
    holds: 65_536,
    breaks: [
      "a response is forwarded chunk by chunk, each before the next one is sent",
      "trailer fields of a response reach the client, and are announced",
    ],
  },
  "does not notice that clients disconnect": {
    isDeaf: true,
    breaks: [
      "a client that disconnects by FIN before the response headers closes the upstream request",
      "a client that disconnects by RST before the response headers closes the upstream request",
      "a client that disconnects during a large response body closes the upstream request",
      "an interrupted upload with Content-Length never looks complete to the upstream",
      "an interrupted chunked upload never looks complete to the upstream",
      "a WebSocket whose client breaks off the connection closes the upstream's connection",
      "close codes and reasons of a WebSocket pass in both directions",
      "bun#29732: a chunked request without its last chunk is not complete",
      "CVE-2023-38697: a length in a request with anything but digits is refused",
    ],
  },
  "keeps connections whose upstream closes them": {
    response: (text) => text.replaceAll(/^connection: close\r\n/gim, ""),
    breaks: [
      "RFC 9112 §9.6: no request is sent on an upstream connection after a response with Connection: close",
    ],
  },
  "takes LF for CRLF in chunks": {
    request: (text) => (text.length < 4096 ? text.replaceAll(/(?<!\r)\n/g, "\r\n") : text),
    breaks: [
      "CVE-2025-22871, CVE-2025-55315: a bare LF does not end a chunk line of a request",
      "CVE-2025-43859: a chunk of a request that does not end with CRLF is refused",
    ],
  },
  "completes truncated responses": {
    adds: "0\r\n\r\n",
    breaks: [
      "a truncated chunked response body fails for the client",
      "bun#29732: a chunked response without its last chunk is not complete",
    ],
  },
};

/** A head and a part of a chunked body. */
const CHUNKED = /^transfer-encoding: chunked\r\n(?:.+\r\n)*\r\n./im;
/** The last chunk and the trailer section. */
const WHOLE = /^0(?:;.*)?\r\n(?:.+\r\n)*\r\n/m;

/** Applies a change to each chunk, and the `holds` and `adds` of a fault. */
class Changed extends Transform {
  readonly #change: Change;
  readonly #fault: Pick<Fault, "holds" | "adds">;
  #held = "";
  #isChunked = false;

  constructor(change: Change, fault: Pick<Fault, "holds" | "adds">) {
    super();
    this.#change = change;
    this.#fault = fault;
  }

  override _transform(chunk: Buffer, _: string, done: TransformCallback): void {
    this.#held += this.#change(chunk.toString("latin1"));
    this.#isChunked ||= CHUNKED.test(this.#held);
    const mayHold = this.#held.length < (this.#fault.holds ?? 0) && CHUNKED.test(this.#held);
    if (mayHold && !WHOLE.test(this.#held)) return done();
    this.push(Buffer.from(this.#held, "latin1"));
    this.#held = "";
    done();
  }

  override _flush(done: TransformCallback): void {
    const { adds = "" } = this.#fault;
    this.push(Buffer.from(this.#held + (this.#isChunked ? adds : ""), "latin1"));
    done();
  }
}

/** Passes the bytes of a socket to another one, and then the first socket's end or reset. */
function pass(from: Socket, to: Socket, by?: Transform): void {
  from.on("error", () => {}).on("close", (isBroken) => isBroken && to.resetAndDestroy());
  (by ? from.pipe(by) : from).pipe(to);
}

/** Creates a server that relays each connection to a port. */
function relay(port: number, join: (inner: Socket, outer: Socket) => void): Server {
  return createServer({ allowHalfOpen: true, noDelay: true }, (outer) => {
    join(connect({ port, host: "127.0.0.1", allowHalfOpen: true, noDelay: true }), outer);
  });
}

const unchanged: Change = (text) => text;

function toContestant(name: string, fault: Fault): Contestant {
  const { request = unchanged, response = unchanged, isDeaf, options = {} } = fault;
  return {
    name,
    source: "project",
    async start({ upstream }) {
      const back = relay(upstream, (inner, outer) => {
        pass(outer, inner);
        pass(inner, outer, new Changed(response, fault));
      });
      const target = `http://127.0.0.1:${await listen(back)}`;
      const host = await startHost("node", target, { options: JSON.stringify(options) });
      const front = relay(host.port("default"), (inner, outer) => {
        if (isDeaf) outer.on("error", () => {}).pipe(inner, { end: false });
        else pass(outer, inner, new Changed(request, {}));
        pass(inner, outer);
      });
      const port = await listen(front);
      const stop = async (): Promise<void> => {
        for (const server of [front, back]) server.close();
        await host.stop();
      };
      return { port, version: "", configuration: "", stop };
    },
  };
}

export const faulty: readonly (readonly [contestant: Contestant, breaks: readonly RowName[]])[] =
  Object.entries(faults).map(([name, fault]) => [
    toContestant(name, fault),
    [...OWN, ...fault.breaks],
  ]);
