/**
 * A program for every runtime. It sends failing requests for which the library must print no line, prints `quiet`, and then
 * sends others: the first failure of each kind must print a line.
 */
import { once } from "node:events";
import { type AddressInfo, createServer, type Socket } from "node:net";
import { createProxy, type CreateProxyOptions, ProxyError, proxyFetch } from "#fetchway";

async function listen(answer: (socket: Socket) => unknown): Promise<[string, () => void]> {
  const server = createServer((socket) => {
    socket.on("error", () => {}).once("data", () => answer(socket));
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  const { port } = server.address() as AddressInfo;
  return [`http://127.0.0.1:${port}`, () => server.close()];
}

const [dead, close] = await listen(() => {});
close();
const cutOff = (socket: Socket): unknown =>
  socket.end("HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nabc");
const [cut, closeCut] = await listen(cutOff);
const [cutFetch, closeCutFetch] = await listen(cutOff);

async function send(options: CreateProxyOptions, init?: RequestInit): Promise<void> {
  const proxy = createProxy(options);
  const response = await proxy.fetch(new Request("http://proxy.test/a?token=secret", init));
  await response.text().catch(() => {});
  await proxy.close();
}

// These failures must print no line. They come first: after a failure of the same kind that has printed a line, a missing line
// would prove nothing, because only the first failure of each kind prints one.
const put = { method: "PUT", body: "hello" };
await send({ target: dead, onError: () => {} });
await send({ target: dead, onRequestEnd: () => {} });
await send({ target: dead, log: false });
await send({ target: dead, signal: AbortSignal.abort() });
await send({ target: cut, bodyLimit: 1 }, put);
await proxyFetch(new Request("http://proxy.test/"), dead, { log: false });
const refuse = () => () => Promise.reject(new ProxyError("connection_refused"));
const explained = createProxy({ target: dead, interceptors: { attempt: [refuse] } });
await explained.explain(new Request("http://proxy.test/"));
await explained.close();
const closed = createProxy({ target: dead });
await closed.close();
await (await closed.fetch(new Request("http://proxy.test/"))).text();
console.error("quiet");

for (let i = 0; i < 3; i++) await send({ target: dead });
await proxyFetch(new Request("http://proxy.test/"), dead);
await send({ target: cut });
await send({ target: cut });
await send({ target: dead.replace("127.0.0.1", "localhost") });
await send({ target: cutFetch, fetch: (url, init) => fetch(url, init) });
closeCut();
closeCutFetch();
