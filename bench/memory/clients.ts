/** Clients that discard the bytes that they receive. */
import { once } from "node:events";
import { Agent, request, type IncomingMessage, type RequestOptions } from "node:http";
import { connect, type Socket } from "node:net";

const piece = Buffer.alloc(65_536, "fetchway ");

async function ask(options: RequestOptions, length = 0): Promise<IncomingMessage> {
  const agent = new Agent({ keepAlive: false });
  const sent = request({ host: "127.0.0.1", agent, ...options });
  const answered = once(sent, "response") as Promise<[IncomingMessage]>;
  for (let rest = length; rest > 0; rest -= piece.length) {
    const more = sent.write(rest < piece.length ? piece.subarray(0, rest) : piece);
    if (!more) await once(sent, "drain");
  }
  sent.end();
  const [response] = await answered;
  if (response.statusCode !== 200) throw new Error(`status ${response.statusCode}`);
  return response;
}

async function read(response: IncomingMessage): Promise<{ length: number; last: string }> {
  let length = 0;
  let last = "";
  for await (const chunk of response as AsyncIterable<Buffer>) {
    length += chunk.length;
    last = chunk.toString("latin1", 0, 40);
  }
  return { length, last };
}

/** Reads a body of so many bytes. */
export async function download(port: number, bytes: number): Promise<void> {
  const { length } = await read(await ask({ port, path: `/bytes/${bytes}` }));
  if (length !== bytes) throw new Error(`${length} of ${bytes} bytes arrived`);
}

/** Sends a body of so many bytes. */
export async function upload(port: number, bytes: number): Promise<void> {
  const headers = { "content-length": bytes };
  const { last } = await read(await ask({ port, path: "/count", method: "POST", headers }, bytes));
  if (Number(last) !== bytes) throw new Error(`${last} of ${bytes} bytes arrived`);
}

/** Opens so many event streams, and waits until each has had its first event. */
export async function openStreams(port: number, path: string, count: number): Promise<Socket[]> {
  const sockets: Socket[] = [];
  while (sockets.length < count) {
    const batch = Math.min(100, count - sockets.length);
    sockets.push(
      ...(await Promise.all(Array.from({ length: batch }, () => openStream(port, path)))),
    );
  }
  return sockets;
}

function openStream(port: number, path: string): Promise<Socket> {
  return new Promise((resolve, reject) => {
    const socket = connect({ port, host: "127.0.0.1" });
    let text = "";
    const late = setTimeout(() => reject(new Error(`no event in 20 s: ${text}`)), 20_000);
    socket.write(`GET ${path} HTTP/1.1\r\nHost: bench.test\r\n\r\n`);
    socket.on("error", reject);
    socket.on("data", (data) => {
      text += data.toString("latin1");
      if (!text.includes("data: ready")) return;
      clearTimeout(late);
      resolve(socket);
    });
    socket.on("close", () => reject(new Error(`closed: ${text}`)));
  });
}
