/**
 * Header fields that middleware changes in Node's request, in the framework's request, or in both: the proxy sends the
 * values that `get` returns.
 */
import { type IncomingMessage, type RequestListener } from "node:http";
import { connect, createSecureServer } from "node:http2";
import { getRequestListener } from "@hono/node-server";
import express from "express";
import { H3, fromNodeHandler } from "h3";
import { toNodeHandler } from "srvx/node";
import { describe, expect, test } from "vitest";
import { createProxy, proxyFetch } from "#fetchway";
import { useApps } from "../../helpers/apps.ts";
import { makeCertificate } from "../../helpers/certificate.ts";
import { within } from "../../helpers/wait.ts";
import { request, type Header } from "../../helpers/wire.ts";

const apps = useApps();
const { upstream } = apps;

/** Changes Node's request before the framework reads it. */
type Early = (req: IncomingMessage) => void;
/** Changes the framework's request. */
type Late = (request: Request) => void;

const nothing = (): void => {};

/** The fields that a test reads: unchanged, changed, added, deleted and repeated ones. */
const NAMES = "x-kept,x-user,x-new,x-secret,x-list,x-late,cookie,x-twice,referer".split(",");

const sent: Header[] = [
  ["X-Kept", "k"],
  ["Authorization", "Basic first"],
  ["Authorization", "Basic second"],
  ["X-User", "mallory"],
  ["X-Secret", "s"],
  ["X-List", "1"],
  ["X-Late", "0"],
  ["Cookie", "a=1"],
  ["X-Twice", "1"],
  ["X-Twice", "2"],
  ["Referer", "http://a.test/"],
];

const inNode: Early = ({ headers }) => {
  headers["x-user"] = "alice";
  headers["x-new"] = "n";
  delete headers["x-secret"];
  headers["x-list"] = ["2", "3"];
  headers.referer = "http://b.test/";
};

const inServer: Late = ({ headers }) => {
  headers.set("x-late", "1");
  headers.append("x-list", "4");
  headers.delete("cookie");
};

/** An app for each server, with middleware before and after the server creates its request. */
const servers: Record<
  string,
  (early: Early, handler: (request: Request) => unknown) => Promise<number>
> = {
  "srvx in Express": (early, handler) => {
    const app = express().use((req, _, next) => {
      early(req);
      next();
    });
    return apps.serve("node", app.use(toNodeHandler(handler as never) as RequestListener));
  },
  h3: (early, handler) => {
    const middleware = fromNodeHandler((req, _, next) => {
      early(req as IncomingMessage);
      next();
    });
    return apps.serve(
      "h3",
      new H3().use(middleware).all("/**", (event) => handler(event.req) as never),
    );
  },
  hono: (early, handler) => {
    const listener = getRequestListener(handler, { overrideGlobalObjects: false });
    return apps.serve("node", (req, res) => {
      early(req);
      void listener(req, res);
    });
  },
};

/** Returns the values of the fields that a handler reads by `get`. */
function look({ headers }: Request): (string | null)[] {
  return NAMES.map((name) => headers.get(name));
}

describe.each(Object.entries(servers))("a server of %s", (_, serve) => {
  test.each<[string, Early, Late]>([
    ["nothing", nothing, nothing],
    ["Node's headers", inNode, nothing],
    ["the server's headers", nothing, inServer],
    ["both", inNode, inServer],
  ])(
    "the upstream gets the header values that the handler sees, if middleware changed: %s",
    async (_what, early, late) => {
      let seen: unknown;
      const port = await serve(early, (each) => {
        late(each);
        seen = look(each);
        return proxyFetch(each, upstream.url);
      });
      expect((await apps.ask(port, request("GET", "/", sent))).status).toBe(200);
      const call = apps.only();
      const reached = NAMES.map((name) => call.all(name).join(", ") || null);
      expect(reached).toEqual(seen);
      if (early === inNode && late === nothing) expect(call.all("x-user")).toEqual(["alice"]);
      if (late === inServer) expect(call.all("x-late")).toEqual(["1"]);
    },
  );

  test("unchanged fields keep their lines and spelling", async () => {
    const port = await serve(inNode, (each) => proxyFetch(each, upstream.url));
    await apps.ask(port, request("GET", "/", sent));
    const kept = new Set(["x-kept", "authorization", "x-twice", "cookie", "x-late"]);
    const isKept = ([name]: Header): boolean => kept.has(name.toLowerCase());
    expect(apps.only().headers.filter(isKept)).toEqual(sent.filter(isKept));
  });

  test("a change of one field is kept although the client repeats another field", async () => {
    let seen: unknown;
    const port = await serve(inNode, (each) => {
      const response = proxyFetch(each, upstream.url);
      // Read in this order, because for a repeated field srvx reads all fields again from Node's request.
      seen = [each.headers.get("x-user"), each.headers.get("authorization")];
      return response;
    });
    await apps.ask(port, request("GET", "/", sent));
    expect(seen).toEqual(["alice", "Basic first, Basic second"]);
    expect(apps.only().all("authorization")).toEqual(["Basic first", "Basic second"]);
    expect(apps.only().all("x-user")).toEqual(["alice"]);
  });
});

test("node:http: the upstream gets the Host that middleware has set, and header values that are numbers", async () => {
  const { nodeHandler, close } = createProxy({ target: upstream.url, changeOrigin: false });
  const port = await apps.serve("node", (req, res) => {
    req.headers.host = "other.test";
    // Middleware without type checks may set a number.
    (req.headers as Record<string, unknown>)["x-number"] = 5;
    nodeHandler(req, res);
  });
  await apps.ask(port, request("GET", "/", [["X-Kept", "k"]]));
  expect(apps.only().all("host")).toEqual(["other.test"]);
  expect(apps.only().all("x-forwarded-host")).toEqual(["other.test"]);
  expect(apps.only().all("x-number")).toEqual(["5"]);
  await close();
});

const certificate = await makeCertificate();

describe("HTTP/2", () => {
  test.each(["srvx", "node"])(
    "%s: the upstream gets the fields of an HTTP/2 request with the changes of middleware",
    async (server) => {
      let seen: unknown;
      const proxy = createProxy({ target: upstream.url });
      const fetching = toNodeHandler(async (each) => {
        seen = look(each);
        return proxy.fetch(each);
      });
      const listener = (req: never, res: never): void => {
        inNode(req);
        const { headers } = req as IncomingMessage;
        seen = NAMES.map((name) => [headers[name] ?? []].flat().join(", ") || null);
        if (server === "srvx") void fetching(req, res);
        else proxy.nodeHandler(req, res);
      };
      const port = await apps.listen(createSecureServer(certificate, listener as never));
      const session = connect(`https://127.0.0.1:${port}`, { rejectUnauthorized: false });
      try {
        const stream = session.request({
          ":path": "/",
          "x-kept": "k",
          "x-user": "mallory",
          "x-secret": "s",
          "x-list": "1",
          cookie: ["a=1", "b=2"],
          "x-twice": ["1", "2"],
        });
        await within(new Promise((resolve) => stream.on("response", resolve)), "the response");
      } finally {
        session.destroy();
        await proxy.close();
      }
      const call = apps.only();
      expect(NAMES.map((name) => call.all(name).join(", ") || null)).toEqual(seen);
      expect(call.all("x-user")).toEqual(["alice"]);
      // RFC 9113 §8.2.3: several Cookie fields of HTTP/2 become one field in HTTP/1.
      expect(call.all("cookie")).toEqual(["a=1; b=2"]);
    },
  );
});
