/** The servers that bench/pool.ts starts in separate processes: an upstream, or a proxy in front of it. */
import { createServer, type RequestListener } from "node:http";
import { createServer as createSecureServer } from "node:https";
import { createProxy } from "../runtimes/node.ts";
import type { PoolStats } from "../src/transport.ts";
import { listen } from "../test/helpers/serve.ts";

/** The configuration of a server, which is passed to it as JSON. */
export type Role =
  | { role: "target"; delay: number; cert?: string; key?: string }
  | { role: "proxy"; target: string; keepAlive: boolean; maxSockets: number; ca?: string };

/** What a proxy reports when it is asked. */
export interface State {
  readonly stats: PoolStats;
  /** The CPU time of the process since its start, in seconds. */
  readonly cpu: number;
}

const BODY = Buffer.alloc(1024, "x");

async function tellPort(server: ReturnType<typeof createServer>): Promise<void> {
  server.keepAliveTimeout = 60_000;
  process.send?.(await listen(server));
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
    void tellPort(secure ? createSecureServer({ cert, key }, answer) : createServer(answer));
    return;
  }
  const { target, keepAlive, maxSockets, ca } = role;
  const tls = ca === undefined ? {} : { tls: { ca } };
  const proxy = createProxy({ target, pool: { keepAlive, maxSockets, ...tls } });
  void tellPort(createServer(proxy.nodeHandler));
  process.on("message", () => {
    const { user, system } = process.cpuUsage();
    process.send?.({
      stats: proxy.stats() as PoolStats,
      cpu: (user + system) / 1e6,
    } satisfies State);
  });
}

start(JSON.parse(process.argv[2] ?? "") as Role);
