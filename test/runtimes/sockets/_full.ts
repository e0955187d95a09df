/** A server whose kernel answers no SYN, so that connection attempts to it hang. */
import { connect, type Socket } from "node:net";
import { startProgram } from "../../helpers/program.ts";
import { pause } from "../../helpers/wait.ts";

export interface Full extends AsyncDisposable {
  sockets: Socket[];
}

/** Starts a server and fills its backlog of connections, so that the kernel drops every further SYN. */
export async function startFull(address: string, on: number): Promise<Full> {
  // Node accepts connections as soon as its event loop runs, so the child process blocks its event loop.
  const program = startProgram("node", [
    "-e",
    `const server = require("node:net").createServer();
     server.listen({ port: ${on}, host: "${address}", backlog: 1 }, () => {
       require("node:fs").writeSync(1, "listening");
       Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0);
     });`,
  ]);
  await program.printed(/listening/);
  const sockets: Socket[] = [];
  for (let full = false; !full;) {
    let connected = false;
    const socket = connect(on, address).on("error", () => {});
    socket.on("connect", () => (connected = true));
    sockets.push(socket);
    const until = performance.now() + 300;
    // On a busy machine the time may be over before a pending "connect" event has run, so let it run before the decision.
    while (!connected && performance.now() < until) await pause(5);
    await new Promise(setImmediate);
    full = !connected;
  }
  return {
    sockets,
    async [Symbol.asyncDispose]() {
      for (const socket of sockets) socket.destroy();
      await program[Symbol.asyncDispose]();
    },
  };
}
