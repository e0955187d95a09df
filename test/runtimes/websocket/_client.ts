/** A client with the runtime's own `WebSocket`, which prints its messages. Bun and Deno run it, so it imports no module. */
declare const Deno: { args: string[] } | undefined;

const [url = ""] = typeof Deno === "undefined" ? process.argv.slice(2) : Deno.args;
const socket = new WebSocket(url, ["b", "c"]);
socket.binaryType = "arraybuffer";
socket.addEventListener("open", () => {
  console.log("open", JSON.stringify(socket.protocol));
  socket.send("h\u00e9llo");
});
socket.addEventListener("message", ({ data }: MessageEvent<string | ArrayBuffer>) => {
  if (typeof data === "string") {
    console.log("message", JSON.stringify(data));
    socket.send(Uint8Array.of(0, 128, 255));
  } else {
    console.log("message", new Uint8Array(data).join());
    socket.close(4001, "bye");
  }
});
socket.addEventListener("close", ({ code, reason }) => {
  console.log("close", code, JSON.stringify(reason));
  process.exit();
});
