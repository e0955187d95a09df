/** Slow bodies: the proxy passes each chunk on immediately, and does not wait for more. */
import { expect } from "vitest";
import type { Client, ResponseHead } from "../helpers/client.ts";
import { rfc } from "../conformance/rfc.ts";
import type { Tools } from "./_suite.ts";
import type { Call } from "../helpers/link.ts";
import { within } from "../helpers/wait.ts";
import { chunk, lastChunk, request } from "../helpers/wire.ts";

class Body {
  text = "";
  readonly #pieces: ReturnType<Client["pieces"]>;

  constructor(client: Client, head: ResponseHead) {
    this.#pieces = client.pieces(head);
  }

  async reach(text: string): Promise<void> {
    while (this.text.length < text.length) {
      const next = await within(this.#pieces.next(), `the body up to ${JSON.stringify(text)}`);
      if (next.done) throw new Error(`the body ended after ${JSON.stringify(this.text)}`);
      this.text += next.value.toString("latin1");
    }
    expect(this.text).toBe(text);
  }

  async end(): Promise<void> {
    const next = await within(this.#pieces.next(), "the end of the body");
    expect(next).toMatchObject({ done: true, value: { cut: false } });
  }
}

async function open(
  t: Tools,
  head: string,
  first = "",
): Promise<[body: Body, call: Call, head: ResponseHead]> {
  t.upstream.script = (call) => call.write(`HTTP/1.1 200 OK\r\n${head}\r\n\r\n${first}`);
  const client = await t.connect();
  client.send(request("GET", "/"));
  const received = await client.readHead();
  return [new Body(client, received), await t.upstream.call(), received];
}

async function expectStepwise(
  t: Tools,
  head: string,
  wrap: (text: string) => string | Uint8Array,
  end: (call: Call) => void,
): Promise<ResponseHead> {
  const [body, call, received] = await open(t, head);
  let text = "";
  for (const piece of ["first ", "second ", "third!"]) {
    call.write(wrap(piece));
    await body.reach((text += piece));
  }
  end(call);
  await body.end();
  return received;
}

export const streams = {
  async "a response body that is still arriving keeps its Content-Length"(t: Tools): Promise<void> {
    const [body, call, head] = await open(t, "Content-Length: 11", "first ");
    expect(head.all("content-length")).toEqual(["11"]);
    await body.reach("first ");
    call.write("other");
    await body.reach("first other");
    await body.end();
  },

  async "response headers arrive before the first byte of a chunked body, and chunks one by one"(
    t: Tools,
  ): Promise<void> {
    await expectStepwise(t, "Transfer-Encoding: chunked", chunk, (call) => call.write(lastChunk));
  },

  async "response headers arrive before the first byte of a body with Content-Length, and chunks one by one"(
    t: Tools,
  ): Promise<void> {
    const head = await expectStepwise(
      t,
      "Content-Length: 19",
      (text) => text,
      () => {},
    );
    expect(head.all("content-length")).toEqual(["19"]);
  },

  async "response headers arrive before the first byte of a close-delimited body, and chunks one by one"(
    t: Tools,
  ): Promise<void> {
    await expectStepwise(
      t,
      "X-A: b",
      (text) => text,
      (call) => call.close(),
    );
  },

  async "each server-sent event arrives as soon as it is sent"(t: Tools): Promise<void> {
    // The head may arrive with the first event. Another test checks that the head does not wait for a body.
    let text = "data: first\n\n";
    t.upstream.script = (call) =>
      call.write(
        "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n",
        chunk(text),
      );
    const client = await t.connect();
    client.send(request("GET", "/"));
    const head = await client.readHead();
    const [body, call] = [new Body(client, head), await t.upstream.call()];
    expect(head.get("content-type")).toBe("text/event-stream");
    await body.reach(text);
    const delays: number[] = [];
    for (let id = 0; id < 20; id++) {
      const event = `id: ${id}\ndata: event ${id}\n\n`;
      const sent = performance.now();
      call.write(chunk(event));
      await body.reach((text += event));
      delays.push(performance.now() - sent);
    }
    delays.sort((a, b) => a - b);
    // A busy machine may delay some events. Buffering would delay every event.
    expect(delays[5]).toBeLessThan(50);
    call.write(lastChunk);
    await body.end();
  },

  async "request body and response body of one exchange stream at the same time"(
    t: Tools,
  ): Promise<void> {
    t.upstream.script = (call) => {
      call.write("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n");
      if (call.length > 0) call.write(chunk(call.body));
      call.onData = (piece) => call.write(chunk(piece));
      void call.done.then(() => call.write(lastChunk));
    };
    const client = await t.connect();
    client.send(request("POST", "/", [["Transfer-Encoding", "chunked"]]), chunk("0;"));
    const body = new Body(client, await client.readHead());
    let text = "0;";
    await body.reach(text);
    for (let count = 1; count < 10; count++) {
      client.send(chunk(`${count};`));
      await body.reach((text += `${count};`));
    }
    client.send(lastChunk);
    await body.end();
    expect(t.upstream.calls[0]).toMatchObject({ state: "complete", text });
  },

  async "an early response to an upload arrives completely, and a truncated upload never looks complete"(
    t: Tools,
  ): Promise<void> {
    t.upstream.script = (call) => call.reply(200, [], "early");
    const client = await t.connect();
    client.send(request("POST", "/", [["Transfer-Encoding", "chunked"]]), chunk("first"));
    expect(await client.read()).toMatchObject({ status: 200, text: "early" });
    client.send(chunk("second"), lastChunk);
    const call = await t.upstream.call();
    await within(call.done, "the request's end or its connection's");
    // The proxy may send the rest of the body or close the upstream connection. It must never send a truncated body
    // that looks like a complete request.
    if (call.state === "complete") expect(call.text).toBe("firstsecond");
    expect((await t.ask(request("GET", "/after"))).status).toBe(200);
  },

  async "bodies of many tiny chunks arrive completely"(t: Tools): Promise<void> {
    rfc("9112-7.1-chunked");
    const text = "0123456789".repeat(300);
    t.upstream.script = (call) => {
      call.write("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n");
      for (const byte of text) call.write(chunk(byte));
      call.write(lastChunk);
    };
    expect(await t.ask(request("GET", "/"))).toMatchObject({ text, cut: false });
  },

  async "a request head and a response head that arrive byte by byte are parsed"(
    t: Tools,
  ): Promise<void> {
    rfc("9110-5.3-whole-head");
    t.upstream.script = async (call) => {
      await call.done;
      for (const byte of "HTTP/1.1 200 OK\r\nX-A: b\r\nContent-Length: 5\r\n\r\nhello") {
        call.write(byte);
        await new Promise(setImmediate);
      }
    };
    const client = await t.connect();
    for (const byte of request("POST", "/", [["X-C", "d"]], "body").toString("latin1")) {
      client.send(byte);
      await new Promise(setImmediate);
    }
    expect(await client.read()).toMatchObject({ status: 200, text: "hello" });
    expect(t.upstream.calls[0]).toMatchObject({ method: "POST", text: "body" });
  },
};
