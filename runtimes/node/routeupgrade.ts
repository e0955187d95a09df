/** Passes upgrades to the app as ordinary requests. Loaded by the first `attach` with `routes`. */
import type { IncomingMessage, ServerResponse } from "node:http";
import type { Server, Socket } from "node:net";
import type { Writable } from "node:stream";
import { ProxyError } from "../../src/error.ts";
import { getHeader, type HeaderList, removeHeader } from "../../src/fields/headers.ts";
import { cleanInterimHeaders } from "../../src/fields/hopbyhop.ts";
import type { Plan } from "../../src/plan.ts";
import type { Incoming } from "../../src/request/incoming.ts";
import { toErrorResponse } from "../../src/response/errorresponse.ts";
import type { Listener } from "../../src/transport/scope.ts";
import { startBackgroundTimer } from "../../src/transport/timers.ts";
import { createResponse, interimOf, protocolOf, writeSwitch } from "./handleupgrade.ts";
import { isProxied } from "./nodeincoming.ts";
import { partsOf, respond, sendParts } from "./noderesponse.ts";
import type { TunnelOptions } from "../../src/options/limitoptions.ts";
import type { Tunnel } from "../../src/transport/tunnel.ts";
import { type RoutedUpgrade, TOKEN_FIELD, unanswered } from "./routed.ts";
import type { UpgradeSocket } from "./upgradesocket.ts";

/** The client's side of an upgrade that the app answers. */
export interface RoutedClient {
  /** Sends the response that opens the tunnel, and connects the client with the tunnel. */
  switchTo(opened: Opened, headers: HeaderList): void;
  /** Prepares the connection for the app's own response, after which the connection ends. */
  refuse(): void;
  /** Answers with an error in place of the app. The app's own response is then discarded. */
  fail(error: ProxyError): void;
}

/** A tunnel that a call of a proxy has opened. It waits until the app returns the response of that call. */
export interface Opened {
  readonly tunnel: Tunnel;
  readonly options: TunnelOptions;
  readonly statusText: string;
}

/**
 * An upgrade that the app answers. The first response head that the app writes decides. If the response is the one that `take`
 * has returned, perhaps with further fields of middleware, the client gets the 101. With any other response, the tunnel is
 * closed, and the client gets that response.
 *
 * `take` returns a 204, because a web `Response` cannot have the status 101, and frameworks may copy the response.
 */
export class UnansweredUpgrade implements RoutedUpgrade {
  readonly message: IncomingMessage;
  readonly protocol: string;
  readonly #client: RoutedClient;
  readonly #token: string = crypto.randomUUID();
  readonly #timeout: number;
  #timer: ReturnType<typeof setTimeout> | undefined;
  #opened: Opened | undefined;

  /**
   * @param res the response that the app writes
   * @param timeout milliseconds within which the app must answer, or call a proxy; 0 for no limit
   */
  constructor(
    req: IncomingMessage,
    res: ServerResponse,
    protocol: string,
    client: RoutedClient,
    timeout: number,
  ) {
    this.message = req;
    this.protocol = protocol;
    this.#client = client;
    this.#timeout = timeout;
    // Remove a token that the client itself has sent.
    removeHeader(req.rawHeaders, TOKEN_FIELD);
    req.rawHeaders.push(TOKEN_FIELD, this.#token);
    req.headers[TOKEN_FIELD] = this.#token;
    unanswered.set(req.rawHeaders, this).set(this.#token, this);
    this.#startTimer();
    // Set these methods on the response itself, because Express replaces its prototype. Each of them may write the head.
    for (const name of ["writeHead", "write", "end", "flushHeaders"] as const) {
      const method = res[name].bind(res) as (...args: unknown[]) => unknown;
      const isHead = name === "writeHead";
      const own = (...args: unknown[]): unknown =>
        this.#answerWith(res, isHead ? args : [res.statusCode]) && isHead ? res : method(...args);
      Object.assign(res, { [name]: own });
    }
  }

  take(
    incoming: Incoming,
    response: Response,
    tunnel: Tunnel,
    options: TunnelOptions,
  ): Response | Promise<Response> {
    if (this.#opened !== undefined || !this.#isUnanswered) {
      throw new ProxyError("proxy_internal_error", {
        message:
          "another call of a proxy has opened a tunnel for this request, or it has an answer",
      });
    }
    const { statusText, headers } = partsOf(response);
    this.#opened = { tunnel, options, statusText };
    this.#startTimer();
    const answer = { status: 204, statusText: "", headers: [...headers, TOKEN_FIELD, this.#token] };
    return respond({ ...answer, body: null }, incoming);
  }

  /** Ends the upgrade without an answer, because the client has disconnected. */
  end(): void {
    this.#finish()?.tunnel.destroy();
  }

  get #isUnanswered(): boolean {
    return unanswered.has(this.#token);
  }

  answer(status: unknown, fields: HeaderList): boolean {
    const opened = this.#finish();
    let isSwitched = false;
    try {
      if (opened === undefined || status !== 204) return false;
      if (removeHeader(fields, TOKEN_FIELD) !== this.#token) return false;
      this.#client.switchTo(opened, cleanInterimHeaders(fields));
      return (isSwitched = true);
    } finally {
      if (!isSwitched) {
        opened?.tunnel.destroy();
        this.#client.refuse();
      }
    }
  }

  /** @param args the arguments of `writeHead` */
  #answerWith(res: ServerResponse, args: unknown[]): boolean {
    return this.#isUnanswered && this.answer(args[0], fieldsOf(res, args.at(-1)));
  }

  #finish(): Opened | undefined {
    clearTimeout(this.#timer);
    unanswered.delete(this.message.rawHeaders);
    unanswered.delete(this.#token);
    return this.#opened;
  }

  #startTimer(): void {
    clearTimeout(this.#timer);
    if (this.#timeout > 0) {
      this.#timer = startBackgroundTimer(() => this.#onTimeout(), this.#timeout);
    }
  }

  #onTimeout(): void {
    // While a proxy forwards the request, only that proxy's time limits apply.
    if (isProxied(this.message)) return this.#startTimer();
    this.end();
    const message = `the app has not answered the upgrade within ${this.#timeout} ms`;
    this.#client.fail(new ProxyError("http_response_timeout", { message }));
  }
}

/**
 * Returns the fields that `writeHead` sends: those in `given`, and fields with other names that were set before.
 * @param given the last argument of `writeHead`
 */
function fieldsOf(res: ServerResponse, given: unknown): HeaderList {
  const fields: HeaderList = [];
  const push = (name: string, value: unknown): void => {
    for (const line of [value].flat()) fields.push(name, String(line));
  };
  if (Array.isArray(given)) fields.push(...given.map(String));
  else if (typeof given === "object")
    for (const [name, value] of Object.entries(given ?? {})) push(name, value);
  for (const name of res.getHeaderNames()) {
    if (getHeader(fields, name) === undefined) push(name, res.getHeader(name));
  }
  return fields;
}

/** Passes an upgrade to the app by the event `request`, like an ordinary request. */
export function routeUpgrade(
  server: Server,
  req: IncomingMessage,
  client: UpgradeSocket,
  plan: Plan,
): void {
  if (client.isWaiting) server.emit("request", req, answerByApp(req, client, plan));
  else client.destroy();
}

/**
 * Detaches a response from its connection, so that further writes of the app are discarded.
 * @returns the stream that takes these writes
 */
function discard(res: ServerResponse): Writable {
  const { Writable } = process.getBuiltinModule("node:stream");
  const nowhere = new Writable({ write: (_chunk, _encoding, done) => done() });
  res.detachSocket(res.socket as Socket);
  res.assignSocket(nowhere as unknown as Socket);
  // Destroy the stream, so that the app gets the event `close`, as with any other response.
  res.on("finish", () => nowhere.destroy());
  return nowhere;
}

/** Creates the response with which the app answers an upgrade. */
function answerByApp(req: IncomingMessage, client: UpgradeSocket, plan: Plan): ServerResponse {
  const { socket } = req;
  const protocol = protocolOf(req, plan) as string;
  const { method, httpVersionMajor, httpVersionMinor, headers } = req;
  const res = createResponse({ method, httpVersionMajor, httpVersionMinor, headers });
  // Set `req` afterwards: on Bun, a response that is constructed with a server's request ignores `assignSocket`.
  Object.assign(res, { req });
  const upgrade = new UnansweredUpgrade(
    req,
    res,
    protocol,
    {
      switchTo({ tunnel, options, statusText }, fields) {
        const head = interimOf(req) + writeSwitch({ statusText, headers: fields }, protocol);
        client.unlisten(listener);
        discard(res);
        // Set the status, because the app may log it.
        res.writeHead(101);
        socket.write(head, "latin1");
        client.switchTo(tunnel, protocol === "websocket", options);
      },
      refuse() {
        client.unlisten(listener);
        client.beginResponse(res);
      },
      fail(error) {
        client.unlisten(listener);
        discard(res).destroy();
        const own = createResponse(req);
        client.beginResponse(own);
        void sendParts(toErrorResponse(error, req.method as string), own);
      },
    },
    plan.timeout,
  );
  // End the upgrade and the connection when the client disconnects, even if it has only ended its direction: the app, and the
  // proxies that it calls, notice only the close of the whole connection.
  const listener: Listener = {
    handleEvent() {
      upgrade.end();
      client.destroy();
    },
  };
  res.assignSocket(socket);
  client.listen(listener);
  return res;
}
