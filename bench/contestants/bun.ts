/** Run by Bun itself: nothing of Node's here. */
import { createProxy } from "#proxy";

declare const Bun: {
  env: Record<string, string | undefined>;
  serve(options: object): unknown;
};

const { PORT, TARGET } = Bun.env;
const proxy = createProxy({ target: TARGET ?? "" });
Bun.serve({ ...proxy, port: Number(PORT), hostname: "127.0.0.1" });
