/** Runs a test's Worker in workerd, with a scriptable upstream. */
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { build } from "esbuild";
import { afterAll, afterEach, beforeAll } from "vitest";
import { toCapnp } from "../../helpers/capnp.ts";
import { connect, type Client } from "../../helpers/client.ts";
import { type Program, startProgram } from "../../helpers/program.ts";
import { Upstream } from "../../helpers/upstream.ts";

interface Worker {
  upstream: Upstream;
  send: (bytes: Uint8Array) => Promise<Client>;
}

/**
 * Serves a Worker during the tests of a file.
 * @param worker the Worker's source. `env.UPSTREAM` is the upstream's URL, `env.SERVICE` a service binding to the network,
 * `env.SELF` a service binding to the Worker itself
 */
export function useWorker(worker: string): Worker {
  const directory = mkdtempSync(join(tmpdir(), "fetchway-"));
  const upstream = new Upstream();
  let program: Program;
  let port = 0;

  beforeAll(async () => {
    await upstream.listen();
    await build({
      stdin: {
        contents: worker,
        resolveDir: fileURLToPath(new URL("../../..", import.meta.url)),
        loader: "js",
      },
      outfile: join(directory, "worker.js"),
      bundle: true,
      format: "esm",
      conditions: ["workerd"],
    });
    writeFileSync(
      join(directory, "config.capnp"),
      toCapnp({ vars: () => ({ UPSTREAM: upstream.url }), services: ["SERVICE"], own: ["SELF"] }),
    );
    program = startProgram("workerd", ["serve", join(directory, "config.capnp"), "--control-fd=1"]);
    port = Number((await program.printed(/"port":\s*(\d+)/))[1]);
  });
  afterEach(() => upstream.reset());
  afterAll(async () => {
    await program[Symbol.asyncDispose]();
    await upstream.stop();
    rmSync(directory, { recursive: true });
  });

  return {
    upstream,
    async send(bytes) {
      const client = await connect(port);
      client.send(bytes);
      return client;
    },
  };
}
