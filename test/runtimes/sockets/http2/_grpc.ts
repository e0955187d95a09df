/** A gRPC service with calls of every kind, and a client that records the result of each call. */
import {
  Client,
  credentials,
  Metadata,
  Server,
  ServerCredentials,
  status,
  type ClientDuplexStream,
  type ClientReadableStream,
  type ClientWritableStream,
  type sendUnaryData,
  type ServerDuplexStream,
  type ServerReadableStream,
  type ServerUnaryCall,
  type ServerWritableStream,
  type StatusObject,
} from "@grpc/grpc-js";
import type { Certificate } from "../../../helpers/certificate.ts";
import { until, within } from "../../../helpers/wait.ts";

type Bytes = Buffer;
const same = (bytes: Bytes): Bytes => bytes;

function method(path: string, requestStream: boolean, responseStream: boolean): object {
  const codec = { serialize: same, deserialize: same };
  return {
    path: `/test.Service/${path}`,
    requestStream,
    responseStream,
    requestSerialize: codec.serialize,
    requestDeserialize: codec.deserialize,
    responseSerialize: codec.serialize,
    responseDeserialize: codec.deserialize,
  };
}

const SERVICE = {
  unary: method("Unary", false, false),
  fail: method("Fail", false, false),
  hang: method("Hang", false, false),
  list: method("List", false, true),
  listAndFail: method("ListAndFail", false, true),
  collect: method("Collect", true, false),
  refuse: method("Refuse", true, false),
  chat: method("Chat", true, true),
};

/** Metadata that the proxy or the connection adds, which a direct call does not have. */
const ADDED = /^(?:x-forwarded-|date$|host$)/;

function record(metadata: Metadata | undefined): Record<string, string[]> {
  const found: Record<string, string[]> = {};
  for (const name of Object.keys(metadata?.getMap() ?? {}).toSorted()) {
    if (ADDED.test(name)) continue;
    found[name] = (metadata as Metadata).get(name).map((each) => Buffer.from(each).toString("hex"));
  }
  return found;
}

/** A server, which records the metadata of each call and how many calls were cancelled. */
export interface GrpcServer {
  readonly port: number;
  readonly url: string;
  /** The metadata of each call. */
  readonly seen: unknown[];
  cancelled(): number;
  stop(): void;
}

/** Starts the server. @param certificate makes it a server with TLS */
export async function startGrpc(certificate?: Certificate): Promise<GrpcServer> {
  const seen: unknown[] = [];
  let cancelled = 0;
  const note = (call: {
    metadata: Metadata;
    on(event: "cancelled", then: () => void): unknown;
  }): void => {
    seen.push(record(call.metadata));
    call.on("cancelled", () => cancelled++);
  };
  const trailer = (): Metadata => {
    const metadata = new Metadata();
    metadata.add("x-trailer", "one");
    metadata.add("x-trailer", "two");
    metadata.add("x-trailer-bin", Buffer.from([0, 255, 10]));
    return metadata;
  };
  const failure = { code: status.FAILED_PRECONDITION, details: "no, ünd %", metadata: trailer() };
  const server = new Server();
  server.addService(SERVICE as never, {
    unary(call: ServerUnaryCall<Bytes, Bytes>, answer: sendUnaryData<Bytes>) {
      note(call);
      const head = new Metadata();
      head.add("x-head", "a");
      head.add("x-head", "b");
      call.sendMetadata(head);
      answer(null, Buffer.concat([Buffer.from("re:"), call.request]), trailer());
    },
    fail(call: ServerUnaryCall<Bytes, Bytes>, answer: sendUnaryData<Bytes>) {
      note(call);
      answer(failure);
    },
    hang: note,
    list(call: ServerWritableStream<Bytes, Bytes>) {
      note(call);
      for (let i = 0; i < 5; i++) call.write(Buffer.from(`${call.request.toString()}${i}`));
      call.end(trailer());
    },
    listAndFail(call: ServerWritableStream<Bytes, Bytes>) {
      note(call);
      call.write(Buffer.from("first"), () => call.emit("error", failure));
    },
    collect(call: ServerReadableStream<Bytes, Bytes>, answer: sendUnaryData<Bytes>) {
      note(call);
      const parts: Bytes[] = [];
      call.on("data", (part: Bytes) => parts.push(part));
      call.on("end", () => answer(null, Buffer.concat(parts), trailer()));
    },
    refuse(call: ServerReadableStream<Bytes, Bytes>, answer: sendUnaryData<Bytes>) {
      note(call);
      // The server answers while the client is still sending.
      call.once("data", () => answer(failure));
    },
    chat(call: ServerDuplexStream<Bytes, Bytes>) {
      note(call);
      call.on("data", (part: Bytes) => call.write(Buffer.from(`re:${part.toString()}`)));
      call.on("end", () => call.end(trailer()));
    },
  });
  const port = await new Promise<number>((resolve, reject) => {
    const keys = certificate && {
      private_key: Buffer.from(certificate.key),
      cert_chain: Buffer.from(certificate.cert),
    };
    const secured = keys
      ? ServerCredentials.createSsl(null, [keys])
      : ServerCredentials.createInsecure();
    server.bindAsync("127.0.0.1:0", secured, (error, bound) => {
      if (error) reject(error);
      else resolve(bound);
    });
  });
  const url = `${certificate ? "https" : "http"}://127.0.0.1:${port}`;
  return { port, url, seen, cancelled: () => cancelled, stop: () => server.forceShutdown() };
}

interface Outcome {
  head: Record<string, string[]>;
  messages: string[];
  status: unknown;
}

type AnyCall =
  | ClientReadableStream<Bytes>
  | ClientWritableStream<Bytes>
  | ClientDuplexStream<Bytes, Bytes>;

function summarize(messages: Bytes[]): string[] {
  return messages.map((each) =>
    each.length > 100
      ? `${each.length}:${each.reduce((sum, byte) => sum + byte, 0)}`
      : each.toString(),
  );
}

/**
 * Makes calls of all kinds, and returns their results by name.
 * @param ca the certificate to trust, for a server with TLS
 */
export async function callAll(
  port: number,
  cancelled: () => number,
  ca?: string,
): Promise<Record<string, Outcome>> {
  const client = new Client(
    `localhost:${port}`,
    ca === undefined ? credentials.createInsecure() : credentials.createSsl(Buffer.from(ca)),
  );
  const metadata = new Metadata();
  metadata.add("x-name", "one");
  metadata.add("x-name", "two");
  metadata.add("x-bytes-bin", Buffer.from([0, 1, 254, 255]));

  function watch(call: object, messages: Bytes[]): Promise<Outcome> {
    const each = call as AnyCall;
    let head: Metadata | undefined;
    each.on("metadata", (given: Metadata) => (head = given));
    each.on("error", () => {});
    return within(
      new Promise((resolve) => {
        each.on("status", ({ code, details, metadata: trailers }: StatusObject) =>
          resolve({
            head: record(head),
            messages: summarize(messages),
            status: { code, details, trailers: record(trailers) },
          }),
        );
      }),
      "the call's status",
    );
  }

  function unary(path: string, body: Bytes, deadline?: number): Promise<Outcome> {
    const messages: Bytes[] = [];
    const options = deadline === undefined ? {} : { deadline: Date.now() + deadline };
    const call = client.makeUnaryRequest(
      `/test.Service/${path}`,
      same,
      same,
      body,
      metadata,
      options,
      (_, message) => message && messages.push(message),
    );
    return watch(call, messages);
  }

  function list(path: string, body: Bytes): Promise<Outcome> {
    const messages: Bytes[] = [];
    const call = client.makeServerStreamRequest(
      `/test.Service/${path}`,
      same,
      same,
      body,
      metadata,
      {},
    );
    call.on("data", (message: Bytes) => messages.push(message));
    return watch(call, messages);
  }

  function upload(path: string, parts: Bytes[]): Promise<Outcome> {
    const messages: Bytes[] = [];
    const call = client.makeClientStreamRequest(
      `/test.Service/${path}`,
      same,
      same,
      metadata,
      {},
      (_, message) => message && messages.push(message),
    );
    for (const part of parts) call.write(part);
    const outcome = watch(call, messages);
    // The server answers `Refuse` before the client has ended.
    if (path !== "Refuse") call.end();
    return outcome;
  }

  async function chat(
    work: (call: ClientDuplexStream<Bytes, Bytes>, messages: Bytes[]) => Promise<void>,
  ): Promise<Outcome> {
    const messages: Bytes[] = [];
    const call = client.makeBidiStreamRequest("/test.Service/Chat", same, same, metadata, {});
    call.on("data", (message: Bytes) => messages.push(message));
    const outcome = watch(call, messages);
    await work(call, messages);
    return outcome;
  }

  try {
    const outcomes = {
      unary: await unary("Unary", Buffer.from("hello")),
      empty: await unary("Unary", Buffer.alloc(0)),
      large: await unary("Unary", Buffer.alloc(3_000_000, "abc")),
      fail: await unary("Fail", Buffer.from("x")),
      unimplemented: await unary("Nothing", Buffer.from("x")),
      list: await list("List", Buffer.from("item ")),
      listAndFail: await list("ListAndFail", Buffer.from("x")),
      collect: await upload("Collect", [
        Buffer.from("a"),
        Buffer.alloc(200_000, "b"),
        Buffer.from("c"),
      ]),
      refuse: await upload("Refuse", [Buffer.from("a")]),
      chat: await chat(async (call, messages) => {
        // Each message is sent when the answer to the previous one has arrived.
        for (let i = 0; i < 5; i++) {
          call.write(Buffer.from(`${i}`));
          await until(() => messages.length === i + 1, "the answer to a message");
        }
        call.end();
      }),
      deadline: await unary("Hang", Buffer.from("x"), 1500),
      cancel: await chat(async (call, messages) => {
        call.write(Buffer.from("x"));
        await until(() => messages.length === 1, "the first answer");
        call.cancel();
      }),
    };
    // The deadline and the cancellation reach the server.
    await until(() => cancelled() >= 2, "two calls to be cancelled at the server");
    return outcomes;
  } finally {
    client.close();
  }
}
