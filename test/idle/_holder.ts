/**
 * A process that opens idle connections and holds them.
 *
 *     node _holder.ts <bytes that each connection sends> <port> <number of connections> <number of the first address>
 */
import { connect } from "node:net";
import process from "node:process";

/** The number of connections from one address. */
const PER_ADDRESS = 1000;
const [text = "", ...numbers] = process.argv.slice(2);
const [port = 0, count = 0, first = 0] = numbers.map(Number);

let opened = 0;
let closed = 0;

/** Opens connection `n`, and connection `n + PARALLEL` only after it, to keep the kernel's accept queue short. */
function open(n: number): void {
  if (n >= count) return;
  const address = first + Math.floor(n / PER_ADDRESS);
  const socket = connect({
    port,
    host: "127.0.0.1",
    localAddress: `127.1.${address >> 8}.${(address & 255) + 1}`,
  });
  let isPending = true;
  const proceed = (): void => {
    if (isPending) open(n + PARALLEL);
    isPending = false;
  };
  socket.on("connect", () => {
    opened++;
    if (text !== "") socket.write(text);
    proceed();
  });
  socket.on("error", proceed);
  socket.on("close", () => closed++);
}

/** The number of connections that are being opened at the same time. */
const PARALLEL = 32;
for (let n = 0; n < Math.min(PARALLEL, count); n++) open(n);

setInterval(() => process.send?.({ opened, closed }), 100);
process.on("disconnect", () => process.exit());
