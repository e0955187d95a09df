/** The upstream of the memory bench: bodies of any length, and event streams that say one thing. */
import { createServer, type ServerResponse } from "node:http";

const piece = Buffer.alloc(65_536, "fetchway ");

/** Writes `left` bytes, as fast as the client reads them. */
function pour(res: ServerResponse, left: number): void {
  let rest = left;
  const write = (): void => {
    while (rest > 0) {
      const part = rest < piece.length ? piece.subarray(0, rest) : piece;
      rest -= part.length;
      if (!res.write(part) && rest > 0) {
        res.once("drain", write);
        return;
      }
    }
    res.end();
  };
  write();
}

const server = createServer({ requestTimeout: 0 }, (req, res) => {
  const [, what, length] = (req.url ?? "").split("/");
  if (what === "idle") {
    res.writeHead(200, { "content-type": "text/event-stream" });
    res.write("data: ready\n\n");
  } else if (what === "bytes") {
    res.writeHead(200, { "content-length": length });
    pour(res, Number(length));
  } else {
    let count = 0;
    req.on("data", (data: Buffer) => (count += data.length));
    req.on("end", () => res.end(`${count}`.padEnd(1024)));
  }
});
server.listen(Number(process.env["PORT"]), "127.0.0.1", 8192);
process.stdin.resume().on("end", () => process.exit());
