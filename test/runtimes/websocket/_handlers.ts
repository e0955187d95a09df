/** Bun servers with WebSocket handlers like those of an app or a framework. Bun runs one of them in each process. */
import { createProxy } from "#fetchway";

interface Data {
  /** The member of a socket's data that Hono's handlers read. */
  events?: { onOpen?: () => void; onClose?: () => void };
  /** The members of a socket's data that Elysia's handlers call if they exist. */
  open?: (socket: OwnSocket) => void;
  message?: (socket: OwnSocket, message: string) => void;
  close?: (socket: OwnSocket) => void;
}

interface OwnSocket {
  data: Data;
  send(message: string): void;
}

type Handlers = Record<"open" | "message" | "close", (...args: unknown[]) => void>;

interface Server {
  port: number;
  upgrade(request: Request, options: { data: Data }): boolean;
}

declare const Bun: { serve(options: object): Server };

const proxy = createProxy({
  target: process.env["UPSTREAM"] ?? "",
  onError: ({ message }) => console.error(message),
});
const read = (): Handlers => (proxy as unknown as { websocket: Handlers }).websocket;

const message = (socket: OwnSocket, text: string): void => socket.data.message?.(socket, text);

/** Handlers that throw for a socket that is not theirs, as Hono's do. */
const strict = {
  open: ({ data }: OwnSocket) => (data.events as NonNullable<Data["events"]>).onOpen?.(),
  message,
  close: ({ data }: OwnSocket) => (data.events as NonNullable<Data["events"]>).onClose?.(),
};

/** Handlers that call the members of a socket's data if they exist, as Elysia's do. */
const lenient = {
  open: (socket: OwnSocket) => socket.data.open?.(socket),
  message,
  close: (socket: OwnSocket) => socket.data.close?.(socket),
};

function choose(socket: unknown): Handlers {
  const { data } = socket as OwnSocket;
  return data.events === undefined ? read() : (strict as unknown as Handlers);
}

const composed: Handlers = {
  open: (socket) => choose(socket).open(socket),
  message: (socket, data) => choose(socket).message(socket, data),
  close: (socket, ...end) => choose(socket).close(socket, ...end),
};

/** The handlers of a server, by the name in the variable HANDLERS. */
const handlers: Record<string, () => object> = {
  strict: () => strict,
  lenient: () => lenient,
  // `read()` gets the proxy's handlers, as another server in this process would. This server does not use them.
  lenientBesideOthers: () => (read(), lenient),
  composed: () => ({ ...read(), ...composed }),
  // The server has only the app's handlers, which call those of the proxy.
  called: () => (read(), composed),
};

const { port } = Bun.serve({
  port: 0,
  hostname: "127.0.0.1",
  fetch(request: Request, server: Server) {
    if (!request.url.endsWith("/own")) return proxy.fetch(request, server);
    const answer: Data["message"] = (socket, text) => socket.send(`own ${text}`);
    server.upgrade(request, { data: { events: {}, message: answer } });
    return new Response(null, { status: 101 });
  },
  websocket: handlers[process.env["HANDLERS"] ?? ""]?.(),
});
console.log(`port ${port}`);
