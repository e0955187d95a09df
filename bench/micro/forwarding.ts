import { addForwarded, addVia } from "../../src/request/outgoing.ts";
import { forward } from "../../src/pipeline/pipeline.ts";
import type { Incoming } from "../../src/request/incoming.ts";
import type { ProxyOptions } from "../../src/options/proxyoptions.ts";
import { compile, type Plan } from "../../src/plan.ts";
import type { UpstreamResponse } from "../../src/transport/message.ts";
import type { Transport } from "../../src/transport/port.ts";
import { answer, browser } from "./headers.ts";
import type { Steps } from "./run.ts";

const client = { address: "192.0.2.7", secure: false, host: "shop.example:8080" };

const reply: UpstreamResponse = { status: 200, statusText: "OK", headers: answer, body: null };
/** A transport that answers at once, without a network. */
const transport: Transport = {
  name: "bench",
  capabilities: { decodes: [], host: true, unixSocket: true, tls: true },
  async send(_, scope) {
    scope.end();
    return reply;
  },
};

const incoming: Incoming = {
  method: "GET",
  path: "/api/items/17?page=2",
  authority: "shop.example",
  secure: false,
  headers: browser,
  address: "192.0.2.7",
  body: null,
  version: () => "1.1",
  listen() {},
  unlisten() {},
  request: () => new Request("http://shop.example/"),
};

const plan = (options: ProxyOptions): Plan => compile(options, () => transport);
const done = (): Response => undefined as unknown as Response;
const exchange = (what: Plan) => (): Promise<Response> =>
  forward(incoming, "http://127.0.0.1:4000/base", what, undefined, done);

export const forwarding: Steps = {
  "X-Forwarded-* of an untrusted client": () => addForwarded([], "x-forwarded", false, client),
  "X-Forwarded-* continued": () =>
    addForwarded([...browser, "X-Forwarded-For", "198.51.100.1"], "x-forwarded", true, client),
  Forwarded: () => addForwarded([], "forwarded", false, client),
  Via: () => addVia([], "edge", "1.1"),
  "an exchange, but for both ends": exchange(plan({})),
  "the same with hooks": exchange(plan({ onRequest() {}, onResponse() {} })),
};
