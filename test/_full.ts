/** A server that a SYN gets no answer from. */
import { connect, type Socket } from "node:net";
import { startProgram } from "./_program.ts";
import { pause } from "./_wait.ts";

export interface Full extends AsyncDisposable {
  sockets: Socket[];
}

/** A server whose backlog is full, so that it answers no SYN any more. */
export async function startFull(address: string, on: number): Promise<Full> {
  // Accepting is Node's own doing: only a listener that never gets to run does not accept.
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
    // The time limit is checked after pending events: on a busy machine it may expire first.
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
