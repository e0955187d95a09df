/** srvx's servers in tests, under h3 too. */
import type { Server } from "srvx";

/** On a free port, without a word. */
export const quietly = {
  port: 0,
  hostname: "127.0.0.1",
  silent: true,
  gracefulShutdown: false,
} as const;

/** Which port a server listens on, once it does. */
export async function portOfSrvx(server: Server): Promise<number> {
  await server.ready();
  return Number(new URL(server.url ?? "").port);
}
