/** The HTTP/2 client is loaded with the first request that asks for it, and by nothing else. */
import { createServer } from "node:http2";
import { createServer as createHttp1 } from "node:http";
import { afterAll, beforeAll, expect, test } from "vitest";
import { listen } from "../../../helpers/serve.ts";
import { startProgram } from "../../../helpers/program.ts";

const http1 = createHttp1((_, res) => res.end("1.1"));
const http2 = createServer((_, res) => res.end("2.0"));
let ports: number[];
beforeAll(async () => {
  ports = [await listen(http1), await listen(http2)];
});
afterAll(() => {
  http1.close();
  http2.close();
});

test("repeated fields pass in both directions although `node:http2` of an old Node accepts no lists of fields", async () => {
  const entry = new URL("../../../../runtimes/node.ts", import.meta.url).href;
  const code = `
    import { connect, createServer } from "node:http2";
    const versions = { ...process.versions, node: "22.4.0" };
    Object.defineProperty(process, "versions", { value: versions });
    const { createProxy } = await import(${JSON.stringify(entry)});
    const upstream = createServer();
    upstream.on("stream", (stream, headers, flags, raw) => {
      stream.respond({ ":status": 200, "set-cookie": ["a=1", "b=2"], "x-seen": raw.join("|") });
      stream.end("body");
    });
    const listen = (server) => new Promise((resolve) => {
      server.listen(0, "127.0.0.1", () => resolve("http://127.0.0.1:" + server.address().port));
    });
    const proxy = createProxy({ target: { url: await listen(upstream), http2: true }, xfwd: false });
    const session = connect(await listen(createServer(proxy.nodeHandler)));
    const stream = session.request({ "x-name": ["1", "2"] });
    stream.on("response", (headers, flags, raw) => console.log(raw.join("|")));
    stream.resume().on("end", () => process.exit(0));
  `;
  await using program = startProgram("node", ["--input-type=module", "-e", code]);
  await program.ended();
  expect(program.output()).toMatch(/set-cookie\|a=1\|set-cookie\|b=2/);
  expect(program.output()).toMatch(/x-name\|1\|x-name\|2/);
});

test("a request over HTTP/1.1 loads no file of the HTTP/2 client, and requests over HTTP/2 load its files once", async () => {
  const entry = new URL("../../../../runtimes/node.ts", import.meta.url).href;
  const code = `
    import { registerHooks } from "node:module";
    import { createServer } from "node:http";
    const loaded = [];
    let imports = 0;
    registerHooks({
      resolve(specifier, context, next) {
        if (specifier.endsWith("/http2pool.ts")) imports++;
        return next(specifier, context);
      },
      load(url, context, next) {
        loaded.push(url.split("/").pop());
        return next(url, context);
      },
    });
    const { createProxy } = await import(${JSON.stringify(entry)});
    const count = () => loaded.filter((name) => /http2|streamattempt/.test(name)).join() || "none";
    const target = (port) => ({ url: "http://127.0.0.1:" + port, http2: port === ${ports[1]} });
    for (const port of ${JSON.stringify(ports)}) {
      const proxy = createProxy({ target: target(port) });
      // Send the requests through a server, so that the modules for responses are loaded as well.
      const server = createServer(proxy.nodeHandler).listen(0, "127.0.0.1");
      await new Promise((resolve) => server.on("listening", resolve));
      const text = await (await fetch("http://127.0.0.1:" + server.address().port)).text();
      for (let i = 0; i < 3; i++) {
        await (await fetch("http://127.0.0.1:" + server.address().port)).text();
      }
      console.log(text, count(), imports);
      server.close();
      proxy.destroy();
    }
    process.exit(0);
  `;
  await using program = startProgram("node", ["--input-type=module", "-e", code]);
  await program.ended();
  const [first, second] = program.output().split("\n");
  expect(first).toBe("1.1 none 0");
  expect(second).toMatch(/^2\.0 .*http2pool\.ts.* 1$/);
});
