import { IncomingMessage, ServerResponse } from "node:http";
import { Readable } from "node:stream";
import { BytesBody } from "../../src/body/bytes.ts";
import type { UpstreamResponse } from "../../src/transport/message.ts";
import { readRequest } from "../../runtimes/node/nodeincoming.ts";
import { respond } from "../../runtimes/node/noderesponse.ts";
import { toHeaders } from "../../src/fields/headers.ts";
import { answer, browser } from "./headers.ts";
import type { Steps } from "./run.ts";

const body = new Uint8Array(1024);
const reply: UpstreamResponse = {
  status: 200,
  statusText: "OK",
  headers: answer,
  body: new BytesBody(body),
};

/** Node's request, to which srvx's request refers. */
const req = Object.assign(new IncomingMessage({ remoteAddress: "192.0.2.7" } as never), {
  rawHeaders: browser,
  httpVersionMajor: 1,
  url: "/api/items",
});
const res = new ServerResponse(req);
const request = {
  method: "GET",
  url: "http://shop.example/api/items",
  headers: { get: (name: string) => req.headers[name] ?? null },
  runtime: { node: { req, res } },
} as unknown as Request;
const hosted = readRequest(request, undefined, {});
const made = readRequest(new Request("http://shop.example/api/items"), undefined, {});

interface Lazy {
  _toNodeResponse(): unknown;
}

export const responses: Steps = {
  "read a request of srvx": () => readRequest(request, undefined, {}),
  "respond lazily, as a server takes it": () =>
    (respond(reply, hosted) as unknown as Lazy)._toNodeResponse(),
  "respond lazily, headers touched": () => {
    const response = respond(reply, hosted) as Response;
    response.headers.set("x-a", "1");
    return (response as unknown as Lazy)._toNodeResponse();
  },
  "respond with a real Response": () => respond(reply, made),
  "control: new Response()": () => new Response(body, { headers: toHeaders(answer) }),
  "control: Readable.toWeb()": () => Readable.toWeb(Readable.from([body])),
};
