/** What bench/pool.ts starts as processes of their own: a target, or a proxy in front of it. */
import { createServer, type RequestListener } from "node:http";
import { createServer as createSecureServer } from "node:https";
import type { AddressInfo } from "node:net";
import { createProxy } from "../runtimes/node.ts";

/** What a server is told at its start. */
export type Role =
  | { role: "target"; delay: number; cert?: string; key?: string }
  | { role: "proxy"; target: string; keepAlive: boolean; maxSockets: number; ca?: string };

const BODY = Buffer.alloc(1024, "x");

function listen(server: ReturnType<typeof createServer>): void {
  server.keepAliveTimeout = 60_000;
  server.listen(0, "127.0.0.1", () => process.send?.((server.address() as AddressInfo).port));
}

function start(role: Role): void {
  if (role.role === "target") {
    const { delay, cert, key } = role;
    const answer: RequestListener = (req, res) => {
      req.resume();
      const send = (): void => void res.setHeader("Content-Length", BODY.length).end(BODY);
      if (delay > 0) setTimeout(send, delay);
      else send();
    };
    const secure = cert !== undefined && key !== undefined;
    return listen(secure ? createSecureServer({ cert, key }, answer) : createServer(answer));
  }
  const { target, keepAlive, maxSockets, ca } = role;
  const tls = ca === undefined ? {} : { tls: { ca } };
  const proxy = createProxy({ target, pool: { keepAlive, maxSockets, ...tls } });
  listen(createServer(proxy.nodeHandler));
  process.on("message", () => process.send?.(proxy.stats()));
}

start(JSON.parse(process.argv[2] ?? "") as Role);
